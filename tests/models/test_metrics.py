"""The measures of the model card, against values worked out by hand and properties they must have."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import metrics

LOGITS = st.lists(st.lists(st.floats(-50, 50), min_size=3, max_size=3), min_size=1, max_size=8).map(np.array)


@given(logits=LOGITS, temperature=st.floats(0.1, 10))
def test_probabilities_sum_to_one_and_keep_the_order(logits: metrics.Floats, temperature: float) -> None:
    probabilities = metrics.softmax(logits, temperature)
    assert probabilities.dtype == np.float64
    assert np.allclose(probabilities.sum(-1), 1)
    best = np.take_along_axis(probabilities, logits.argmax(-1, keepdims=True), -1)[:, 0]
    assert (best == probabilities.max(-1)).all()


def test_softmax_is_exact_and_does_not_overflow() -> None:
    assert np.allclose(metrics.softmax(np.log([[1.0, 2.0, 5.0]])), [[0.125, 0.25, 0.625]])
    assert metrics.softmax(np.array([[1e4, 0.0, -1e4]], np.float32)).tolist() == [[1.0, 0.0, 0.0]]


def test_a_temperature_above_one_makes_less_certain() -> None:
    logits = np.array([[2.0, 0.0, -1.0]])
    cold, plain, warm = (metrics.softmax(logits, t).max() for t in (0.5, 1.0, 2.0))
    assert cold > plain > warm
    assert np.allclose(metrics.softmax(logits, 2.0), metrics.softmax(logits / 2))


def test_accuracy_is_the_share_of_hits() -> None:
    assert metrics.accuracy(np.array([0, 1, 2, 2]), np.array([0, 1, 2, 0])) == 0.75


def test_macro_recall_gives_a_rare_class_the_weight_of_a_common_one() -> None:
    labels = np.array([0] * 8 + [2] * 2)
    assert metrics.macro_recall(np.zeros(10, np.int64), labels) == 0.5
    assert metrics.accuracy(np.zeros(10, np.int64), labels) == 0.8
    assert metrics.macro_recall(labels, labels) == 1.0


def test_macro_recall_leaves_out_a_class_that_does_not_occur() -> None:
    assert metrics.macro_recall(np.array([0, 1, 1]), np.array([0, 0, 0])) == pytest.approx(1 / 3)


def test_rank_correlation_sees_order_alone_and_shares_ranks_between_ties() -> None:
    pytest.importorskip("scipy", reason="scipy belongs to the training set: make test-models")
    values = np.array([0.1, 0.2, 0.7, 5.0])
    assert metrics.spearman(values, np.exp(values)) == pytest.approx(1.0)
    assert metrics.spearman(values, -values) == pytest.approx(-1.0)
    assert metrics.spearman(np.array([1.0, 2.0, 2.0, 3.0]), values) == pytest.approx(math.sqrt(0.9))


def test_linear_correlation() -> None:
    values = np.array([0.0, 1.0, 2.0, 4.0])
    assert metrics.pearson(values, 3 * values + 1) == pytest.approx(1.0)
    assert metrics.pearson(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])) == pytest.approx(0.5)


def test_cosine_is_taken_row_by_row_in_double_precision() -> None:
    first = np.array([[3.0, 4.0], [1.0, 0.0], [1e20, 0.0]], np.float32)
    second = np.array([[6.0, 8.0], [0.0, 2.0], [-1e20, 0.0]], np.float32)
    assert metrics.cosine(first, second).tolist() == [1.0, 0.0, -1.0]


def test_calibration_error_of_a_model_as_sure_as_it_is_right_is_none() -> None:
    probabilities = np.tile([0.75, 0.25, 0.0], (4, 1))
    assert metrics.expected_calibration_error(probabilities, np.array([0, 0, 0, 1])) == pytest.approx(0.0)


def test_calibration_error_is_the_gap_weighted_by_how_many_texts_have_it() -> None:
    probabilities = np.array([[1.0, 0.0, 0.0]] * 3 + [[0.4, 0.3, 0.3]])
    labels = np.array([0, 0, 1, 0])  # right in 2 of 3 when certain, and in 1 of 1 at 0.4
    assert metrics.expected_calibration_error(probabilities, labels) == pytest.approx((3 - 2 + 1 - 0.4) / 4)


def test_calibration_error_puts_neighbours_into_one_bin() -> None:
    probabilities = np.array([[0.51, 0.49, 0.0], [0.59, 0.41, 0.0]])
    labels = np.array([0, 1])
    assert metrics.expected_calibration_error(probabilities, labels, bins=10) == pytest.approx(abs(1 - 1.1) / 2)
    assert metrics.expected_calibration_error(probabilities, labels, bins=100) == pytest.approx((0.49 + 0.59) / 2)


@given(logits=LOGITS, bins=st.integers(1, 30))
def test_calibration_error_is_a_share(logits: metrics.Floats, bins: int) -> None:
    labels = np.zeros(len(logits), np.int64)
    assert 0 <= metrics.expected_calibration_error(metrics.softmax(logits), labels, bins) <= 1


def test_a_calibrated_model_shows_some_error_by_chance_and_less_on_more_texts() -> None:
    unsure = np.full((100, 2), 0.5)
    assert 0.01 < metrics.calibration_error_by_chance(unsure) < 0.1
    assert metrics.calibration_error_by_chance(np.full((10_000, 2), 0.5)) < 0.02
    assert metrics.calibration_error_by_chance(np.eye(3)) == pytest.approx(0.0)
