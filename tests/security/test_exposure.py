"""Who can reach the service, what the service logs about this, and access to its files."""

import os
import signal
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE
from tests.support.server import Server, refusal
from training_service._generated import training_service_pb2 as pb
from training_service.exposure import log_exposure
from training_service.settings.loading import SettingsError, load

LOOPBACK = ["127.0.0.1:0", "127.8.9.10:0", "[::1]:0", "localhost:0"]
BEYOND = ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "[2001:db8::1]:0", "localhost.example:0", "127.1:0"]


@pytest.fixture
def server(tmp_path: Path, storage: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.end(signal.SIGTERM)


def flags(address: str, *, insecure: bool | str = False, backend: str = "process") -> Mapping[str, object]:
    return {"server": {"address": address, "insecure": insecure}, "backend": backend}


@pytest.mark.parametrize("address", BEYOND)
def test_an_address_beyond_loopback_is_refused(address: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(flags=flags(address))
    [line] = str(refused.value).splitlines()
    assert line.startswith(
        f"command line: server.address: {address!r} is not allowed: other machines can reach it"
    )
    assert "does not encrypt connections" in line
    assert "server.insecure = true" in line


@pytest.mark.parametrize("address", BEYOND)
def test_an_address_beyond_loopback_is_accepted_with_insecure_and_a_warning(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    log_exposure(load(flags=flags(address, insecure="true", backend="fake")))
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert f"anyone who can connect to {address} can submit, read and cancel every job" in record.message


@pytest.mark.parametrize("address", LOOPBACK)
@pytest.mark.parametrize("insecure", [False, True])
def test_on_loopback_the_log_names_the_possible_users(
    address: str, insecure: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    log_exposure(load(flags=flags(address, insecure=insecure, backend="fake")))
    record, of_programs = caplog.records
    assert record.levelname == of_programs.levelname == "INFO"
    assert "every program on this machine" in record.message
    assert "can upload programs and run them" in of_programs.message


@pytest.mark.parametrize(
    ("user", "backend", "warned"), [(0, "process", 1), (0, "fake", 0), (1000, "process", 0)]
)
def test_running_processes_as_root_logs_a_warning(
    user: int, backend: str, warned: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    log_exposure(load(flags=flags("127.0.0.1:0", backend=backend)))
    assert len([record for record in caplog.records if "run as root" in record.message]) == warned


def test_a_service_beyond_loopback_needs_insecure_and_warns_at_each_start(server: Server) -> None:
    where = ("--data-dir", str(server.folder), "--address", "0.0.0.0:0")
    assert "server.insecure = true (--insecure)" in refusal("serve", *where)
    server.address = "0.0.0.0:0"
    for starts in (1, 2):
        server.start("--insecure").close()
        assert server.log.read_text().count("WARNING training_service.exposure server.insecure:") == starts
        assert server.end(signal.SIGTERM) == 0


def test_files_of_the_service_and_its_jobs_are_accessible_only_to_its_user(server: Server) -> None:
    program = "import os; os.makedirs(os.environ['MODEL_URI'] + '/x', exist_ok=True)"
    with (server.folder / "config.toml").open("a") as config:
        config.write(f'[algorithms.writing.process]\ncommand = ["python", "-c", "{program}"]\n')
    known = set(server.folder.rglob("*"))
    before = os.umask(0o022)
    try:
        with server.start() as client:
            jobs = [client.submit(name, "1", "v1", instances=2) for name in ("program", "writing")]
            for job in jobs:
                assert client.wait(job, timeout=PATIENCE).status == pb.succeed
        assert server.end(signal.SIGTERM) == 0
    finally:
        os.umask(before)
    made = [path for path in server.folder.rglob("*") if path not in known and path != server.log]
    assert {"jobs.db", "x"} <= {path.name for path in made}
    assert any(path.name.endswith(".log.gz") for path in made)
    assert [(path, oct(mode)) for path in made if (mode := _rights(path)) & 0o077] == []


def _rights(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode) if not path.is_symlink() else 0
