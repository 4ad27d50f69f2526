"""The component deploy/optional/tls makes an overlay encrypted, and asks callers for tokens.

The component client-certificates is for overlays with it.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.support import schemas
from tests.support.overlays import (
    Manifest,
    container,
    deployed,
    files_are_mounted_from_secrets,
    one,
    settings_in_pod,
    with_components,
)
from training_service.settings import Settings
from training_service.settings.protection import is_authenticated, is_encrypted

PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


@pytest.fixture(params=["kind", "debian", "production"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> list[Manifest]:
    return with_components(tmp_path, request.param, "tls")


@pytest.fixture
def settings(objects: list[Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    return settings_in_pod(objects, tmp_path, monkeypatch)


def test_every_caller_is_encrypted_and_identified(settings: Settings) -> None:
    assert is_encrypted(settings)
    assert is_authenticated(settings)
    assert not settings.server.insecure


def test_a_token_is_enough(settings: Settings) -> None:
    assert settings.server.tls.client_certificates == "none"


def test_ports_match_the_settings(objects: list[Manifest], settings: Settings) -> None:
    ports = {each["name"]: each["containerPort"] for each in container(objects)["ports"]}
    listen, health = settings.reports.listen, settings.server.health_address
    assert (listen, health) == (f"0.0.0.0:{ports['reports']}", f"0.0.0.0:{ports['health']}")
    assert settings.reports.address == f"training-service:{ports['reports']}"
    service = {each["targetPort"]: each["port"] for each in one(objects, "Service")["spec"]["ports"]}
    assert service == {name: port for name, port in ports.items() if name != "health"}


def test_probes_use_the_port_without_tls_and_have_one_handler(objects: list[Manifest]) -> None:
    for probe in PROBES:
        handlers = container(objects)[probe].keys() & {"grpc", "tcpSocket", "httpGet", "exec"}
        assert len(handlers) == 1, "the API server refuses a probe with two handlers"
        assert container(objects)[probe][handlers.pop()]["port"] in (51003, "health")


def test_files_match_the_settings(objects: list[Manifest], settings: Settings) -> None:
    tls = settings.server.tls
    assert files_are_mounted_from_secrets(objects, (tls.certificate, tls.key, settings.reports.ca))
    volumes = {each["name"]: each for each in deployed(objects)["spec"]["volumes"]}
    assert volumes["tls"]["secret"]["defaultMode"] & 0o007 == 0


@pytest.mark.parametrize("version", schemas.VERSIONS)
@pytest.mark.parametrize("objects", ["kind", "production"], indirect=True)
def test_the_objects_are_valid(objects: list[Any], version: str) -> None:
    for each in objects:
        schemas.check(each, version)


@pytest.mark.parametrize("overlay", ["kind", "debian", "production"])
def test_with_client_certificates_they_are_required_and_their_authorities_are_mounted(
    overlay: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = with_components(tmp_path, overlay, "tls", "client-certificates")
    settings = settings_in_pod(objects, tmp_path, monkeypatch)
    tls = settings.server.tls
    assert tls.client_certificates == "required"
    files = (tls.certificate, tls.key, tls.client_ca, settings.reports.ca)
    assert files_are_mounted_from_secrets(objects, files)
    for each in objects if overlay != "debian" else []:  # Kubernetes 1.20, for which there are no schemas
        schemas.check(each, schemas.VERSIONS[0])
