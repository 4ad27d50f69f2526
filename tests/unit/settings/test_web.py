"""The dashboard beyond this machine needs encryption and tokens, or `insecure`."""

from datetime import timedelta
from typing import Any

import pytest

from training_service.settings import Settings
from training_service.settings.loading import SettingsError, load
from training_service.settings.protection import is_web_open

TLS = {"certificate": "server.pem", "key": "server.key"}
CLIENTS = {**TLS, "client_ca": "clients.pem", "client_certificates": "required"}
EVERYWHERE = "0.0.0.0:0"


def loaded(**tables: Any) -> Settings:
    return load(flags={"backend": "fake", **tables})


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        ({}, "anyone on the way can read the tokens"),
        ({"auth": {"loopback": "token"}}, "anyone on the way can read the tokens"),
        ({"server": {"tls": TLS}}, "every visitor would be an operator"),
    ],
)
def test_an_unprotected_address_is_refused(tables: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError) as refused:
        loaded(web={"address": EVERYWHERE}, **tables)
    assert "web.address: '0.0.0.0:0' is not allowed" in str(refused.value)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    "tables",
    [
        {"server": {"tls": TLS}, "auth": {"loopback": "token"}},
        {"server": {"tls": CLIENTS}},
        {"server": {"insecure": True}},
        {"server": {"tls": TLS, "address": EVERYWHERE}},
    ],
)
def test_a_protected_address_is_allowed(tables: dict[str, Any]) -> None:
    assert loaded(web={"address": EVERYWHERE}, **tables).web.address == EVERYWHERE


def test_a_dashboard_that_is_off_needs_no_protection() -> None:
    assert loaded(web={"address": EVERYWHERE, "enabled": False})


def test_without_its_own_certificates_it_asks_for_tokens_if_the_api_asks_for_certificates() -> None:
    assert is_web_open(loaded())
    assert not is_web_open(loaded(server={"tls": CLIENTS}))
    assert not is_web_open(loaded(auth={"loopback": "token"}))


@pytest.mark.parametrize(
    "web", [{"address": "x"}, {"session": 59}, {"session": "P31D"}, {"streams": 0}, {"hosts": "x"}]
)
def test_values_out_of_bounds_are_refused(web: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=f"web.{next(iter(web))}"):
        loaded(web=web)


def test_durations_are_written_as_elsewhere() -> None:
    assert loaded(web={"session": "PT30M"}).web.session == timedelta(minutes=30)
