"""Every setting of the service: a SENTIMENT_* variable or a flag of `sentiment serve`. Nothing else reads either."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from service.artifact import NAME

DEFAULT_MODEL = Path(__file__).parent.parent / "models" / "sentiment-en"


PREFIX = "SENTIMENT_"

_ORIGIN = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+")

_OF_KUBERNETES = re.compile(r"(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)")
"""What it puts into every container's environment for a Service whose name starts with `sentiment`."""

Exposure = Literal["on", "open", "off"]
"""Who is answered: whoever is answered elsewhere, everybody, nobody."""


class Settings(BaseSettings):
    """Settings with their defaults; each description is what the documentation and `--help` show."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        frozen=True,
        extra="forbid",
        cli_kebab_case=True,
        # A value that is refused may be a key, or stand beside one.
        hide_input_in_errors=True,
    )

    host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0 for every interface.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    model: Path = Field(DEFAULT_MODEL, description="Folder of the model to serve.")
    models: str | None = Field(
        None, description="Several models instead, as name=folder,name=folder; the first is the default."
    )
    max_models: int = Field(8, ge=1, description="Models that may be loaded at a time.")
    models_dir: Path | None = Field(
        None, description="Folder in which models lie that may be loaded at run time; unset: none may."
    )
    processes: int = Field(
        1, ge=1, description="Processes that share the port, each with its own models, workers, queue and limits."
    )
    workers: int | None = Field(
        None,
        ge=1,
        description="Worker threads of each process; unset: its share of the cores that affinity and CPU quota allow.",
    )
    queue: int = Field(
        2048, ge=1, description="Texts, or windows of long ones, that may wait for a worker; past it 429."
    )
    max_texts: int = Field(1000, ge=1, description="Texts in one request.")
    max_characters: int = Field(100_000, ge=1, description="Characters in one text.")
    max_windows: int = Field(64, ge=1, description="Windows that one long text may be read in.")
    max_sentences: int = Field(256, ge=1, description="Sentences of one text that get scores of their own.")
    max_words: int = Field(200, ge=1, description="Words of one text that /explain masks.")
    max_body_bytes: int = Field(4 * 1024 * 1024, ge=1, description="Bytes in a request's body; past it 413.")
    max_head_bytes: int = Field(
        32 * 1024, ge=1024, description="Bytes in a request's line and headers together; past it 431."
    )
    max_connections: int = Field(
        3000, ge=1, description="Connections at once; past it idle ones are closed, else 503 but for health."
    )
    keep_alive: int = Field(75, ge=1, description="Seconds a connection may stay open without a request.")
    transfer_timeout: float = Field(
        30.0,
        gt=0,
        description="Seconds for a request's head to come, for its body, and for its answer to be taken; 408.",
    )
    request_timeout: float = Field(
        30.0, gt=0, description="Seconds a request may take; past it 504, and what has not run is dropped."
    )
    grace_period: int = Field(30, ge=0, description="Seconds after SIGTERM in which what was admitted is answered.")
    api_keys: SecretStr | None = Field(
        None, description="Keys, comma or newline between them, one of which every request must carry; unset: none is."
    )
    api_keys_file: Path | None = Field(
        None, description="File of such keys, one a line, read again when it changes; in force beside those given."
    )
    admin_keys: SecretStr | None = Field(
        None, description="Keys that open the routes of administration, and all others; unset: administration is off."
    )
    cors_origins: str = Field(
        "", description="Origins whose pages may ask from a browser, a comma between them; unset: none but its own."
    )
    metrics: Exposure = Field(
        "on", description="Answer /metrics: on, with a key where keys are set; open, without one too; off, not at all."
    )
    docs: Exposure = Field("on", description="Answer /docs and /openapi.json: on, open or off, as with metrics.")
    page: bool = Field(True, description="Serve the playground, a page to try the service on, at /.")
    tracing_endpoint: str | None = Field(
        None, description="URL that takes OpenTelemetry traces over OTLP/HTTP; unset: there are none."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least severe events logged.")
    log_format: Literal["json", "console"] = Field("json", description="Form of the log lines.")

    @property
    def folders(self) -> dict[str | None, Path]:
        """The models to serve, the default first: their folders by name. A single one has its manifest's name."""
        return {None: self.model} if self.models is None else dict(_named(self.models))

    @property
    def origins(self) -> list[str]:
        """The origins of cors_origins."""
        return [origin.strip() for origin in self.cors_origins.split(",") if origin.strip()]

    @property
    def limits(self) -> dict[str, int]:
        """What one request may ask for and one text may cost, by what is limited."""
        return {
            "texts": self.max_texts,
            "characters": self.max_characters,
            "windows": self.max_windows,
            "sentences": self.max_sentences,
            "words": self.max_words,
        }

    @field_validator("models")
    @classmethod
    def _models_have_names(cls, value: str | None) -> str | None:
        if value is not None:
            names = [name for name, _ in _named(value)]
            if repeated := {name for name in names if names.count(name) > 1}:
                raise ValueError(f"{' and '.join(sorted(repeated))} is named twice")
        return value

    @model_validator(mode="after")
    def _models_fit(self) -> Self:
        if self.models is not None and "model" in self.model_fields_set:
            raise ValueError("model and models are both given: name one model by the first, or several by the second")
        if len(self.folders) > self.max_models:
            raise ValueError(f"models names {len(self.folders)} and max_models is {self.max_models}")
        return self

    @model_validator(mode="after")
    def _administration_reaches_every_process(self) -> Self:
        if self.processes > 1 and self.admin_keys is not None:
            raise ValueError(
                f"processes is {self.processes} and admin_keys are set: administration would reach one of them alone"
            )
        return self

    @model_validator(mode="after")
    def _origins_are_listed(self) -> Self:
        if wrong := [origin for origin in self.origins if not _ORIGIN.fullmatch(origin)]:
            raise ValueError(f"cors_origins: {wrong[0]!r} is no origin; one is https://name or https://name:port")
        return self

    @model_validator(mode="after")
    def _largest_request_fits(self) -> Self:
        if self.max_texts > self.queue:
            raise ValueError(f"max_texts is {self.max_texts} and queue {self.queue}: a full request would never fit")
        return self


def _named(models: str) -> list[tuple[str, Path]]:
    """What `name=folder,name=folder` says. Raises ValueError for anything else."""
    found = []
    for part in models.split(","):
        name, _, folder = (side.strip() for side in part.partition("="))
        if not folder or not NAME.fullmatch(name):
            raise ValueError(
                f"{part.strip()!r} is not name=folder, the name of at most 64 letters, digits, '.', '_', '-'"
            )
        found.append((name, Path(folder)))
    return found


def unknown_variables(names: Iterable[str]) -> dict[str, str | None]:
    """The variables of the prefix that are no setting, each with the one that may have been meant.

    A misspelt one would else be passed over: with SENTIMENT_API_KEY the service would be open to all.
    """
    settings = [field.upper() for field in Settings.model_fields]
    found: dict[str, str | None] = {}
    for name in names:
        if name.upper().startswith(PREFIX):
            rest = name.upper().removeprefix(PREFIX)
            if rest not in settings and not _OF_KUBERNETES.fullmatch(rest):
                found[name] = next((PREFIX + near for near in get_close_matches(rest, settings, n=1)), None)
    return found
