"""Commands that trainctl suggests are for the same service."""

from pathlib import Path
from typing import Any

import pytest

from training_service.client.cli.session import Session


@pytest.fixture(autouse=True)
def no_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ADDRESS", "CA", "CERT", "KEY", "SERVER_NAME"):
        monkeypatch.delenv(f"TRAINING_SERVICE_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def session(**given: str) -> Session:
    options: dict[str, Any] = dict.fromkeys(("address", "ca", "cert", "key", "server_name"))
    return Session(**{**options, **given}, json=False)


def test_the_default_service_needs_no_options() -> None:
    assert session().command("list") == "trainctl list"
    assert session(address="127.0.0.1:51001").command("list") == "trainctl list"


def test_another_service_is_named_with_its_files() -> None:
    other = session(address="a:1", ca="my ca.pem", cert="c.pem", key="c.key", server_name="b")
    assert other.command("watch 7") == (
        "trainctl -a a:1 --ca 'my ca.pem' --cert c.pem --key c.key --server-name b watch 7"
    )


def test_what_the_environment_gives_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINING_SERVICE_ADDRESS", "a:1")
    monkeypatch.setenv("TRAINING_SERVICE_CA", "ca.pem")
    assert session(address="a:1", ca="ca.pem").command("list") == "trainctl list"
    assert session(address="a:1", ca="other.pem").command("list") == "trainctl --ca other.pem list"
