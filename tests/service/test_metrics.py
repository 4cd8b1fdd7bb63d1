"""The metrics an operator reads: their names, their labels, and that each service has its own."""

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.metrics import Metrics


def rendered(metrics: Metrics) -> dict[str, prometheus_client.Metric]:
    return {family.name: family for family in text_string_to_metric_families(metrics.render().decode())}


def test_what_is_rendered_can_be_read_back() -> None:
    metrics = Metrics()
    metrics.requests.labels("POST", "/v1/classify", "200").inc()
    metrics.queue_depth.set_function(lambda: 7)
    metrics.queue_seconds.observe(0.003)
    families = rendered(metrics)
    (total,) = (s for s in families["sentiment_requests"].samples if s.name == "sentiment_requests_total")
    assert total.labels == {"method": "POST", "route": "/v1/classify", "status": "200"}
    assert total.value == 1
    assert families["sentiment_queue_depth"].samples[0].value == 7
    counts = {s.labels.get("le"): s.value for s in families["sentiment_queue_seconds"].samples if "le" in s.labels}
    assert (counts["0.0025"], counts["0.005"], counts["+Inf"]) == (0, 1, 1)


def test_every_metric_explains_itself_and_is_named_as_prometheus_asks() -> None:
    for family in Metrics().registry.collect():
        if family.name.startswith("sentiment_"):
            assert family.documentation.endswith("."), family.name
            assert not family.name.endswith(("_total", "_milliseconds", "_ms")), family.name


def test_the_process_is_watched_too() -> None:
    assert {"python_info", "python_gc_collections"} <= rendered(Metrics()).keys()


def test_two_services_of_one_process_count_apart_and_leave_the_global_registry_alone() -> None:
    one, other = Metrics(), Metrics()
    one.truncated.inc(3)
    assert one.registry.get_sample_value("sentiment_truncated_texts_total") == 3
    assert other.registry.get_sample_value("sentiment_truncated_texts_total") == 0
    assert not [f.name for f in prometheus_client.REGISTRY.collect() if f.name.startswith("sentiment_")]


@pytest.mark.parametrize("name", ["request_seconds", "queue_seconds", "tokenize_seconds", "inference_seconds"])
def test_times_are_told_apart_from_half_a_millisecond_to_half_a_minute(name: str) -> None:
    metrics = Metrics()
    histogram = getattr(metrics, name)
    if labels := histogram._labelnames:
        histogram = histogram.labels(*labels)
    histogram.observe(0.0004)
    histogram.observe(29.0)
    samples = [s for s in rendered(metrics)[f"sentiment_{name}"].samples if s.name.endswith("_bucket")]
    assert [s.value for s in samples] == [1.0] * (len(samples) - 2) + [2.0, 2.0]
