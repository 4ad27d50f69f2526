"""Addresses beyond loopback need encryption, or `insecure`; then callers need proof."""

from pathlib import Path
from typing import Any

import pytest

from training_service.settings import Settings
from training_service.settings.loading import SettingsError, load
from training_service.settings.protection import is_open

TLS = {"certificate": "server.pem", "key": "server.key"}
CLIENTS = {**TLS, "client_ca": "clients.pem", "client_certificates": "required"}
EVERYWHERE = "0.0.0.0:0"


def loaded(**tables: Any) -> Settings:
    return load(flags={"backend": "fake", **tables})


def refusal(**tables: Any) -> str:
    with pytest.raises(SettingsError) as refused:
        loaded(**tables)
    [line] = str(refused.value).splitlines()
    return line.removeprefix("command line: ")


@pytest.mark.parametrize("tls", [TLS, CLIENTS], ids=["tokens", "certificates"])
def test_tls_opens_any_address_to_callers_with_proof(tls: dict[str, str]) -> None:
    assert not is_open(loaded(server={"address": EVERYWHERE, "tls": tls}))


def test_without_tls_the_refusal_says_so() -> None:
    line = refusal(server={"address": EVERYWHERE})
    assert line.startswith(
        f"server.address: '{EVERYWHERE}' is not allowed: other machines can reach it, and the "
    )
    assert "the service does not encrypt connections: anyone on the way can read the tokens" in line
    assert "set server.tls, or protect the port" in line
    assert "set server.insecure = true (--insecure)" in line
    with_tokens = refusal(server={"address": EVERYWHERE}, auth={"loopback": "token"})
    assert "does not encrypt connections" in with_tokens


@pytest.mark.parametrize(
    ("server", "loopback", "expected"),
    [
        ({}, "open", True),
        ({}, "token", False),
        ({"insecure": True, "address": EVERYWHERE}, "open", True),
        ({"insecure": True, "address": EVERYWHERE}, "token", False),
        ({"insecure": True, "address": EVERYWHERE, "tls": TLS}, "open", True),
        ({"address": EVERYWHERE, "tls": TLS}, "open", False),
        ({"tls": TLS}, "open", True),
    ],
)
def test_callers_without_proof_are_accepted_on_this_machine_or_if_the_settings_say_so(
    server: dict[str, Any], loopback: str, expected: bool
) -> None:
    assert is_open(loaded(server=server, auth={"loopback": loopback})) is expected


def test_the_reporter_beyond_loopback_needs_tls_only() -> None:
    """Its callers have tokens."""
    assert refusal(reports={"listen": EVERYWHERE}).startswith(
        f"reports.listen: '{EVERYWHERE}' is not allowed"
    )
    loaded(reports={"listen": EVERYWHERE}, server={"tls": TLS})
    loaded(reports={"listen": EVERYWHERE}, server={"insecure": True})
    loaded(reports={"listen": "127.0.0.1:0"})


def test_health_checks_may_be_reached_from_anywhere() -> None:
    loaded(server={"health_address": EVERYWHERE})


def test_ranks_without_certificates_need_an_address_of_their_own() -> None:
    tables: dict[str, Any] = {"server": {"tls": CLIENTS}, "reports": {"address": "train.example:51001"}}
    assert "reports.address: 'train.example:51001' is not allowed: ranks have no client cert" in refusal(
        **tables
    )
    tables["reports"]["listen"] = "127.0.0.1:0"
    loaded(**tables)


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        (
            {"server": {"tls": {"certificate": "a"}}},
            "server.tls: certificate and key are only allowed together",
        ),
        ({"server": {"tls": {"key": "a"}}}, "server.tls: certificate and key are only allowed together"),
        ({"server": {"tls": {**CLIENTS, "certificate": None, "key": None}}}, "needs certificate and key"),
        ({"server": {"tls": {**TLS, "client_ca": "a"}}}, "server.tls: client_ca is required with"),
        ({"server": {"tls": {**CLIENTS, "client_ca": None}}}, "server.tls: client_ca is required with"),
        (
            {"server": {"tls": {**CLIENTS, "client_certificates": "maybe"}}},
            "it must be 'none', 'optional' or",
        ),
        (
            {"server": {"tls": {**CLIENTS, "client_certificates": "optional"}}},
            "certificate_address is required",
        ),
        (
            {"server": {"tls": {**CLIENTS, "certificate_address": EVERYWHERE}}},
            "certificate_address is required",
        ),
        ({"server": {"tls": {**TLS, "warn_before": "-1"}}}, "server.tls.warn_before: "),
        ({"server": {"health_address": "0.0.0.0:65536"}}, "the port must be from 0 to 65535"),
        ({"server": {"health_address": "0.0.0.0"}}, "server.health_address: '0.0.0.0' is not allowed"),
        ({"reports": {"ca": "a"}}, "reports.ca: it is not allowed without TLS"),
        ({"metrics": {"tls": True}}, "metrics.tls: true is not allowed: it needs server.tls"),
    ],
)
def test_contradictions_are_refused(tables: dict[str, Any], problem: str) -> None:
    assert problem in refusal(**tables)


def test_environment_variables_set_tls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRAINING_SERVICE_SERVER__TLS__CERTIFICATE", str(tmp_path / "a"))
    monkeypatch.setenv("TRAINING_SERVICE_SERVER__TLS__KEY", str(tmp_path / "b"))
    for name in ("CA", "CERT", "KEY", "SERVER_NAME"):
        monkeypatch.setenv(f"TRAINING_SERVICE_{name}", "of the client")
    assert loaded().server.tls.certificate == tmp_path / "a"
