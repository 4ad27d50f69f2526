"""The service on a Redis server: either is killed, and nothing is lost or doubled."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.patience import PATIENCE
from tests.support.redis_server import RedisServer
from tests.support.watching import comes
from training_service._generated import training_service_pb2 as pb
from training_service.client import TrainingClient
from training_service.client.errors import Unavailable

if TYPE_CHECKING:
    from tests.support.server import Server
else:
    Server = Any


@pytest.fixture
def service(redis: RedisServer, server: Server) -> Server:
    """A service on that Redis server, not started yet."""
    return server


def submit(client: TrainingClient, **parameters: str) -> int:
    return client.submit("program", "1", "v1", parameters=parameters)


def test_jobs_survive_a_kill_of_the_service(service: Server, redis: RedisServer) -> None:
    with service.start("--capacity", "1") as client:
        running = submit(client, RUN_SECONDS="forever")
        waiting = [submit(client) for _ in range(5)]
        comes(client, running, lambda found: found.status == pb.running)
    assert service.end(signal.SIGKILL) == -signal.SIGKILL
    assert redis.ask("ZRANGE", "{training-service}:queued", "0", "-1") == [str(job) for job in waiting]
    with service.start("--capacity", "1") as client:
        assert [client.status(job).positionInQueue for job in waiting] == list(range(5))
        client.cancel(running)
        assert [client.wait(job).status for job in waiting] == [pb.succeed] * 5
        assert submit(client) == waiting[-1] + 1
    assert "s3cret" not in service.log.read_text()
    assert not (service.folder / "jobs.db").exists()


def test_jobs_survive_a_kill_of_the_server(service: Server, redis: RedisServer) -> None:
    with service.start("--capacity", "1") as client:
        running = submit(client, RUN_SECONDS="2")
        waiting = [submit(client) for _ in range(3)]
        redis.kill()
        with pytest.raises(Unavailable, match=r"the job store at redis://.* does not answer"):
            client.status(running)
        redis.start("--requirepass", "s3cret")
        done = [client.wait(job) for job in (running, *waiting)]
        assert [(job.status, job.attempt) for job in done] == [(pb.succeed, 1)] * 4


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (
            "redis://:s3cret@127.0.0.1:1/0",
            "redis://127.0.0.1:1/0 (prefix training-service): cannot be reached",
        ),
        ("http://:s3cret@127.0.0.1/0", "store.url: it must be redis://HOST"),
        ("redis://:s3cret@[::1/0", "store.url: it must be redis://HOST"),
    ],
)
def test_an_unusable_store_is_named_in_one_line_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, message: str
) -> None:
    monkeypatch.setenv("TRAINING_SERVICE_STORE__URL", url)
    program = str(Path(sys.executable).with_name("training-service"))
    shown = subprocess.run(
        [program, "serve", "--data-dir", str(tmp_path), "--address", "127.0.0.1:0"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (shown.returncode, len(shown.stderr.splitlines())) == (2, 1), shown.stderr
    assert message in shown.stderr
    assert "s3cret" not in shown.stderr


def test_the_password_is_not_shown_with_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINING_SERVICE_STORE__URL", "redis://:s3cret@localhost:6379/0")
    program = str(Path(sys.executable).with_name("training-service"))
    shown = subprocess.run([program, "config"], capture_output=True, text=True, check=True).stdout
    assert "s3cret" not in shown
    assert json.loads(shown)["store"]["prefix"] == "training-service"
