"""Settings from variables and flags, and what is refused."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from service.settings import DEFAULT_MODEL, Settings, unknown_variables

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the machine the tests run on."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"SENTIMENT_{name.upper()}", raising=False)


def flags(*arguments: str) -> Settings:
    return Settings(_cli_prog_name="sentiment serve", _cli_parse_args=list(arguments))


def test_the_defaults_listen_on_this_machine_alone_and_serve_the_model_that_ships() -> None:
    settings = Settings()
    assert settings.host == "127.0.0.1"
    assert settings.model == DEFAULT_MODEL == ROOT / "models" / "sentiment-en"
    assert settings.workers is None
    assert settings.max_texts <= settings.queue


def test_every_setting_says_what_it_is() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert re.fullmatch(r"[A-Z].*\.", field.description), name


def test_a_variable_overrides_the_default_and_a_flag_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENTIMENT_PORT", "9000")
    monkeypatch.setenv("SENTIMENT_MODEL", "/somewhere")
    assert Settings().port == 9000
    settings = flags("--port", "9001", "--workers=3", "--log-format", "console")
    assert (settings.port, settings.workers, settings.log_format) == (9001, 3, "console")
    assert settings.model == Path("/somewhere")


def test_every_setting_has_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        flags("--help")
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    assert "sentiment serve" in text
    for name in Settings.model_fields:
        assert f"--{name.replace('_', '-')} " in text


def test_an_unknown_flag_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        flags("--prot", "1")
    assert exit_.value.code == 2
    assert "--prot" in capsys.readouterr().err


def test_variables_without_the_prefix_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "9000")
    monkeypatch.setenv("HOST", "0.0.0.0")
    assert (Settings().port, Settings().host) == (8000, "127.0.0.1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "-1"),
        ("port", "65536"),
        ("port", "http"),
        ("workers", "0"),
        ("workers", "many"),
        ("queue", "0"),
        ("models", "a"),
        ("models", "a="),
        ("models", "=models/a"),
        ("models", "a b=models/a"),
        ("models", "a/b=models/a"),
        ("models", f"{'a' * 65}=models/a"),
        ("models", "a=models/a,a=models/b"),
        ("models", "a=models/a,"),
        ("max_models", "0"),
        ("max_texts", "0"),
        ("max_characters", "0"),
        ("max_windows", "0"),
        ("max_sentences", "0"),
        ("max_words", "0"),
        ("max_body_bytes", "0"),
        ("max_head_bytes", "1023"),
        ("max_connections", "0"),
        ("keep_alive", "0"),
        ("transfer_timeout", "0"),
        ("metrics", "closed"),
        ("docs", "yes"),
        ("request_timeout", "0"),
        ("request_timeout", "nan"),
        ("grace_period", "-1"),
        ("grace_period", "0.5"),
        ("log_level", "loud"),
        ("log_format", "xml"),
    ],
)
def test_a_bad_value_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"SENTIMENT_{name.upper()}", value)
    with pytest.raises(ValidationError) as refusal:
        Settings()
    (problem,) = refusal.value.errors()
    assert problem["loc"] == (name,)
    with pytest.raises(ValidationError):
        flags(f"--{name.replace('_', '-')}={value}")


@pytest.mark.parametrize(("name", "value"), [("port", "0"), ("port", "65535"), ("workers", "1"), ("grace_period", "0")])
def test_the_edges_are_allowed(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"SENTIMENT_{name.upper()}", value)
    assert getattr(Settings(), name) == int(value)


def test_a_full_request_has_to_fit_the_queue() -> None:
    assert Settings(max_texts=10, queue=10).queue == 10
    with pytest.raises(ValidationError, match="max_texts is 11 and queue 10: a full request would never fit"):
        Settings(max_texts=11, queue=10)


def test_several_models_have_names_and_the_first_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().folders == {None: DEFAULT_MODEL}
    monkeypatch.setenv("SENTIMENT_MODELS", "b=models/one, a.2=/models/another")
    assert list(Settings().folders.items()) == [("b", Path("models/one")), ("a.2", Path("/models/another"))]
    assert flags("--models", "c=here").folders == {"c": Path("here")}


def test_one_model_and_several_are_not_both_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENTIMENT_MODEL", "/somewhere")
    with pytest.raises(ValidationError, match="model and models are both given"):
        flags("--models", "a=models/a")


def test_more_models_than_may_be_loaded_are_refused() -> None:
    with pytest.raises(ValidationError, match="models names 2 and max_models is 1"):
        Settings(models="a=a,b=b", max_models=1)


def test_every_limit_is_a_setting_of_its_own() -> None:
    limits = {name: 2 + index for index, name in enumerate(Settings().limits)}
    settings = Settings(**{f"max_{name}": value for name, value in limits.items()})  # type: ignore[arg-type]
    assert settings.limits == limits


def test_settings_do_not_change_and_have_no_others() -> None:
    settings = Settings()
    with pytest.raises(ValidationError, match="frozen"):
        settings.port = 1  # type: ignore[misc]
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        Settings(prot=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("SENTIMENT_API_KEY", "SENTIMENT_API_KEYS"),
        ("SENTIMENT_KEYS", "SENTIMENT_API_KEYS"),
        ("SENTIMENT_MAX_TEXT", "SENTIMENT_MAX_TEXTS"),
        ("sentiment_loglevel", "SENTIMENT_LOG_LEVEL"),
        ("SENTIMENT_QQQQ", None),
    ],
)
def test_a_misspelt_variable_is_found_and_the_one_that_was_meant(name: str, meant: str | None) -> None:
    assert unknown_variables(["HOME", "SENTIMENT_PORT", "sentiment_host", name]) == {name: meant}


def test_what_kubernetes_makes_for_a_service_is_no_misspelling() -> None:
    ends = [
        "PORT_80_TCP",
        "PORT_80_TCP_ADDR",
        "SERVICE_HOST",
        "SERVICE_PORT",
        "SERVICE_PORT_HTTP",
        "SERVICE_SERVICE_HOST",
    ]
    assert not unknown_variables(f"SENTIMENT_{end}" for end in ends)


def test_only_origins_are_listed_and_never_all_of_them() -> None:
    assert Settings(cors_origins="https://a.example, http://localhost:3000").origins == [
        "https://a.example",
        "http://localhost:3000",
    ]
    for wrong in ("*", "a.example", "https://a.example/", "https://*.a.example", "null"):
        with pytest.raises(ValidationError, match="is no origin"):
            Settings(cors_origins=wrong)
