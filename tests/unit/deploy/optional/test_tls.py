"""The component deploy/optional/tls makes an overlay encrypted and authenticated."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import schemas
from tests.support.overlays import ROOT, Manifest, container, deployed, kustomized, one
from training_service.settings import Settings
from training_service.settings.loading import load
from training_service.settings.protection import is_authenticated, is_encrypted


@pytest.fixture(params=["kind", "production"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> list[Manifest]:
    deploy = os.path.relpath(ROOT / "deploy", tmp_path)
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{deploy}/overlays/{request.param}"],
        "components": [f"{deploy}/optional/tls"],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    return kustomized(str(tmp_path))


@pytest.fixture
def settings(objects: list[Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings as in the service's pod: from the file and the variables of image and pod."""
    for name in [*os.environ]:
        if name.startswith("TRAINING_SERVICE_"):
            monkeypatch.delenv(name)
    for name, value in re.findall(r"(TRAINING_SERVICE_\w+)=(\S+)", (ROOT / "Dockerfile").read_text()):
        monkeypatch.setenv(name, value)
    for variable in container(objects)["env"]:
        monkeypatch.setenv(variable["name"], variable.get("value", "training"))
    (config,) = [each["data"] for each in objects if each["kind"] == "ConfigMap"]
    (tmp_path / "config.toml").write_text(config["config.toml"])
    return load(tmp_path / "config.toml")


def test_every_caller_is_encrypted_and_identified(settings: Settings) -> None:
    assert is_encrypted(settings)
    assert is_authenticated(settings)
    assert not settings.server.insecure


def test_ports_match_the_settings(objects: list[Manifest], settings: Settings) -> None:
    ports = {each["name"]: each["containerPort"] for each in container(objects)["ports"]}
    listen, health = settings.reports.listen, settings.server.health_address
    assert (listen, health) == (f"0.0.0.0:{ports['reports']}", f"0.0.0.0:{ports['health']}")
    assert settings.reports.address == f"training-service:{ports['reports']}"
    service = {each["targetPort"]: each["port"] for each in one(objects, "Service")["spec"]["ports"]}
    assert service == {name: port for name, port in ports.items() if name != "health"}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container(objects)[probe]["grpc"]["port"] == ports["health"]


def test_files_match_the_settings(objects: list[Manifest], settings: Settings) -> None:
    tls = settings.server.tls
    named = {path.parent for path in (tls.certificate, tls.key, tls.client_ca, settings.reports.ca) if path}
    mounts = {Path(each["mountPath"]): each for each in container(objects)["volumeMounts"]}
    volumes = {each["name"]: each for each in deployed(objects)["spec"]["volumes"]}
    assert named == {path for path, each in mounts.items() if "secret" in volumes[each["name"]]}
    assert all(mounts[path]["readOnly"] for path in named)
    assert "subPath" not in str(mounts), "a file that is mounted by itself never changes"
    assert volumes["tls"]["secret"]["defaultMode"] & 0o007 == 0


def test_training_pods_reach_the_reporter_only(objects: list[Manifest]) -> None:
    others, training = one(objects, "NetworkPolicy")["spec"]["ingress"]
    managed = {"app.kubernetes.io/managed-by": "training-service"}
    (expression,) = others["from"][0]["podSelector"]["matchExpressions"]
    assert ({expression["key"]: expression["values"][0]}, expression["operator"]) == (managed, "NotIn")
    assert {each["port"] for each in others["ports"]} == {"grpc", "metrics"}
    assert training["from"] == [{"podSelector": {"matchLabels": managed}}]
    assert training["ports"] == [{"port": "reports"}]


@pytest.mark.parametrize("version", schemas.VERSIONS)
def test_the_objects_are_valid(objects: list[Any], version: str) -> None:
    for each in objects:
        schemas.check(each, version)
