"""What deploys and watches the service fits it: metrics, ports, probes, periods; and the tools that read it agree."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
import yaml
from fastapi.routing import iter_route_contexts
from prometheus_client.parser import text_string_to_metric_families

from service.api.app import LAST_SECONDS, create_app
from service.metrics import Metrics
from service.settings import Settings
from tests.service.api.conftest import TINY
from tests.service.serving import serving

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
PROMETHEUS = DEPLOY / "prometheus"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
DEFAULTS = Settings(model=TINY)

promtool = pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed: Debian's prometheus")


def run(*command: str | Path, **options: Any) -> str:
    done = subprocess.run([*map(str, command)], check=False, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.fixture(scope="module")
def busy() -> Iterator[tuple[str, str]]:
    """A service that has done a little of everything: its address, and what it tells."""
    with serving() as (url, _):
        for route, texts in (("classify", ["good", "", "film " * 200]), ("embed", ["good"]), ("explain", ["good"])):
            httpx2.post(f"{url}/{route}", json={"inputs": texts})
        httpx2.get(f"{url}/nothing")
        yield url, httpx2.get(f"{url}/metrics").text


@promtool
def test_metrics_are_as_prometheus_asks(busy: tuple[str, str]) -> None:
    assert run("promtool", "check", "metrics", input=busy[1]) == ""


@promtool
def test_the_configuration_and_the_alerts_load() -> None:
    assert "SUCCESS" in run("promtool", "check", "config", PROMETHEUS / "prometheus.yml")
    run("promtool", "check", "rules", PROMETHEUS / "alerts.yml")


@promtool
def test_the_alerts_fire_when_they_should_and_only_then() -> None:
    assert "SUCCESS" in run("promtool", "test", "rules", PROMETHEUS / "alerts_test.yml")


def alerts() -> dict[str, Any]:
    groups = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text("utf-8"))["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def test_every_alert_is_tested_and_documented() -> None:
    tested = (PROMETHEUS / "alerts_test.yml").read_text("utf-8")
    documented = (ROOT / "docs" / "operations.md").read_text("utf-8")
    for name in alerts():
        assert re.search(rf"alertname: {name}\n +exp_alerts", tested), f"{name} is not tested to fire"
        assert f"`{name}`" in documented


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "grafana" / "dashboards" / "sentiment.json").read_text("utf-8"))
    return found


def queries() -> dict[str, str]:
    asked = {f"alert {name}": rule["expr"] for name, rule in alerts().items()}
    for panel in dashboard()["panels"]:
        asked |= {f"panel {panel['title']} {target['refId']}": target["expr"] for target in panel["targets"]}
    return asked


@pytest.mark.parametrize("where", queries())
def test_every_metric_that_is_asked_for_exists(where: str) -> None:
    """With the labels that it is grouped or selected by."""
    known = {"up": {"instance", "job"}}
    for family in Metrics().registry.collect():
        for suffix in ("", "_total", "_bucket", "_count", "_sum"):
            known[family.name + suffix] = {"instance", "job", "le"}
    metrics = Metrics()
    for metric in vars(metrics).values():
        if names := getattr(metric, "_labelnames", None):
            for family in metric.describe():
                for suffix in ("", "_total", "_bucket", "_count", "_sum"):
                    known[family.name + suffix] |= set(names)
    query = queries()[where]
    asked = re.findall(r"\b(sentiment_\w+|process_\w+|up)\b(?:\{([^}]*)\})?", query)
    assert asked
    for name, selectors in asked:
        assert name in known, f"{where} asks for {name}"
        labels = set(re.findall(r"(\w+)=", selectors))
        assert labels <= known[name], f"{where} selects {name} by {labels}"
    grouped = {label for by in re.findall(r"by \(([^)]*)\)", query) for label in by.replace(" ", "").split(",")}
    assert grouped <= set().union(*(known[name] for name, _ in asked))


def test_the_dashboard_finds_its_source() -> None:
    sources = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text("utf-8"))
    (source,) = sources["datasources"]
    assert urlsplit(source["url"]).hostname in COMPOSE["services"]
    used = {panel["datasource"]["uid"] for panel in dashboard()["panels"]}
    assert used == {source["uid"]}
    (provider,) = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/sentiment.yml").read_text("utf-8"))[
        "providers"
    ]
    mounts = dict(volume.split(":")[:2] for volume in COMPOSE["services"]["grafana"]["volumes"])
    assert mounts["./deploy/grafana/dashboards"] == provider["options"]["path"]


@pytest.mark.skipif(not shutil.which("prometheus"), reason="Prometheus is not installed: Debian's prometheus")
def test_a_real_prometheus_scrapes_the_service_and_evaluates_the_alerts(busy: tuple[str, str], tmp_path: Path) -> None:
    url, _ = busy
    config = (PROMETHEUS / "prometheus.yml").read_text("utf-8")
    target = COMPOSE["services"]["sentiment"]["ports"][0].split(":")[1]
    assert f"sentiment:{target}" in config
    config = config.replace(f"sentiment:{target}", urlsplit(url).netloc).replace("15s", "1s")
    (tmp_path / "prometheus.yml").write_text(config, "utf-8")
    shutil.copy(PROMETHEUS / "alerts.yml", tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*command, f"--web.listen-address={address}"], stderr=log, stdout=log)
    try:
        texts = 'sum(sentiment_texts_total{operation="classify",outcome="ok"})'
        assert eventually(address, texts) == 2
        assert eventually(address, 'up{job="sentiment"}') == 1
        rules = httpx2.get(f"http://{address}/api/v1/rules").json()["data"]["groups"][0]["rules"]
        assert {rule["name"] for rule in rules} == alerts().keys()
        assert {rule["health"] for rule in rules} <= {"ok", "unknown"}
    finally:
        process.terminate()
        process.wait()


def eventually(address: str, query: str, seconds: float = 60) -> float:
    """A query's value, once there is one."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            answer = httpx2.get(f"http://{address}/api/v1/query", params={"query": query}).json()
            if found := answer["data"]["result"]:
                return float(found[0]["value"][1])
        except (httpx2.TransportError, ValueError):
            pass
        time.sleep(0.2)
    raise AssertionError(f"{query} has no value")


def test_what_is_told_can_be_parsed(busy: tuple[str, str]) -> None:
    names = {family.name for family in text_string_to_metric_families(busy[1])}
    assert {"sentiment_texts", "sentiment_unknown_tokens", "process_resident_memory_bytes"} <= names


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_every_container_is_bounded_and_hardened(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory", "pids"}
    assert "healthcheck" in service or name == "sentiment"
    assert service.get("profiles") == (None if name == "sentiment" else ["observability"])
    if name != "sentiment":
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    for volume in service.get("volumes", []):
        source, _, *mode = volume.split(":")
        if source.startswith("./"):
            assert (ROOT / source).is_dir()
            assert mode == ["ro"]
        else:
            assert source in COMPOSE["volumes"]


def test_a_container_is_given_the_time_that_the_service_takes_to_stop() -> None:
    needed = DEFAULTS.grace_period + LAST_SECONDS
    assert int(COMPOSE["services"]["sentiment"]["stop_grace_period"].removesuffix("s")) > needed
    pod = kubernetes()["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] >= needed + pause
    assert {"name": "SENTIMENT_GRACE_PERIOD", "value": str(DEFAULTS.grace_period)} in container["env"]


@pytest.mark.skipif(
    not shutil.which("docker") or subprocess.run(["docker", "compose", "version"], capture_output=True).returncode != 0,
    reason="docker compose is not installed",
)
def test_docker_takes_the_compose_file() -> None:
    names = run("docker", "compose", "--profile", "observability", "config", "--services", cwd=ROOT).split()
    assert set(names) == COMPOSE["services"].keys()


def kubernetes() -> dict[str, Any]:
    manifests = yaml.safe_load_all((DEPLOY / "kubernetes" / "sentiment.yaml").read_text("utf-8"))
    return {manifest["kind"]: manifest for manifest in manifests}


def test_kubernetes_asks_what_the_service_answers() -> None:
    found = kubernetes()
    assert found.keys() == {"Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler"}
    template = found["Deployment"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    routes = {route.path for route in iter_route_contexts(create_app(DEFAULTS).routes)}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] in routes
        assert container[probe]["httpGet"]["port"] == container["ports"][0]["name"]
    assert (container["readinessProbe"]["httpGet"]["path"], container["livenessProbe"]["httpGet"]["path"]) == (
        "/readyz",
        "/healthz",
    )
    assert container["ports"][0]["containerPort"] == DEFAULTS.port
    assert template["metadata"]["annotations"]["prometheus.io/port"] == str(DEFAULTS.port)
    known = {f"SENTIMENT_{name.upper()}" for name in Settings.model_fields}
    assert {variable["name"] for variable in container["env"]} <= known
    labels = template["metadata"]["labels"]
    assert found["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert found["Service"]["spec"]["selector"] == labels
    assert found["Service"]["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert found["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == found["Deployment"]["metadata"]["name"]


def test_a_pod_is_bounded_and_hardened_as_the_image_allows() -> None:
    pod = kubernetes()["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    user = re.search(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE)
    assert user
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]) == (int(user[1]), int(user[2]))
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"].keys() == {"cpu", "memory"}


def test_the_image_is_built_as_it_has_to_be() -> None:
    assert DOCKERFILE.count("FROM python:3.11-slim-bookworm") == 2
    assert "--require-hashes --only-binary :all: -r /src/requirements-image.lock" in DOCKERFILE
    assert f"EXPOSE {DEFAULTS.port}" in DOCKERFILE
    assert re.search(r"HEALTHCHECK [^\n]*\\\n +CMD \[\"python\"", DOCKERFILE)
    assert 'ENTRYPOINT ["sentiment", "serve"]' in DOCKERFILE
    assert COMPOSE["services"]["sentiment"]["ports"] == [f"{DEFAULTS.port}:{DEFAULTS.port}"]
