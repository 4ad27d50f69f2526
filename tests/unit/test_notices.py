"""The service's messages to its service manager."""

import logging
import socket
from pathlib import Path

import pytest

from training_service.notices import READY, notify


@pytest.mark.parametrize("kind", ["file", "abstract"])
def test_the_manager_gets_the_state(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, given = (str(tmp_path / "n"),) * 2 if kind == "file" else (f"\0{tmp_path.name}", f"@{tmp_path.name}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(own)
        manager.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", given)
        notify(READY)
        assert manager.recv(100) == b"READY=1"


def test_without_a_manager_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify(READY)


def test_a_manager_that_is_gone_is_no_reason_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    with caplog.at_level(logging.WARNING):
        notify(READY)
    assert "the service manager cannot be reached" in caplog.text
