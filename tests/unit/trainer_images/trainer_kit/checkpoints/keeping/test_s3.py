"""Checkpoints in an object store: moto's S3 server with s3fs as the client."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.trainers.checkpoint_groups import (
    PROGRAM,
    Job,
    losses,
    read_until,
    weights,
)
from tests.support.trainers.launcher import Launcher, end_of

OVERLAY = Path(sys.prefix) / "s3"
"""The environment of the server and the client (scripts/install, tests/support/s3-requirements.txt)."""
SERVE = (
    "import sys, boto3; from moto.server import ThreadedMotoServer as Server;"
    "server = Server('127.0.0.1', 0, verbose=False); server.start();"
    "url = 'http://%s:%d' % server.get_host_and_port();"
    "boto3.client('s3', endpoint_url=url).create_bucket(Bucket='training');"
    "print(url, flush=True); sys.stdin.read()"
)
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "PYTHONPATH": os.pathsep.join([str(OVERLAY), os.environ.get("PYTHONPATH", "")]),
}


class Server:
    """An S3 server with an empty bucket `training`."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE],
            env={"PATH": os.environ["PATH"], "HOME": str(folder), **CREDENTIALS},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout
        self.url = self._process.stdout.readline().strip()
        assert self.url, "the server did not start"

    @property
    def settings(self) -> dict[str, str]:
        """The environment variables of a client, as a Secret would provide them."""
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": self.url}

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.close()


def test_a_group_resumes_from_a_bucket(launcher: Launcher, server: Server) -> None:
    unbroken = [end_of(process, 200) for process in launcher.start_group(2, PROGRAM)]
    job = Job(launcher, "s3://training/checkpoints/1")
    group = job.start(2, WAIT="1", HOLD_AT="19", **server.settings)
    reported = losses(read_until(group[0], 17))
    group[1].kill()
    reported |= losses(end_of(group[0], 200).stdout.splitlines())
    end_of(group[1])

    ends = job.run(2, **server.settings)
    again = losses(ends[0].stdout.splitlines())
    assert f"resuming from step {min(again) - 1}, saved by attempt 1" in ends[0].stdout
    assert min(again) in (16, 19)
    assert reported | again == losses(unbroken[0].stdout.splitlines())
    assert [weights(end) for end in ends] == [weights(end) for end in unbroken]


def test_a_store_that_goes_away_does_not_end_the_training(
    launcher: Launcher, server: Server, tmp_path: Path
) -> None:
    job = Job(launcher, "s3://training/checkpoints/2")
    once = {"AWS_MAX_ATTEMPTS": "1"}  # otherwise, the client's pauses between retries dominate this test
    settings = {**server.settings, **once, "CHECKPOINT_EVERY_STEPS": "30"}
    go = tmp_path / "go"
    [process] = job.start(1, WAIT="1", HOLD_AT="20", GO=str(go), **settings)
    before = read_until(process, 20)
    server.close()
    go.touch()
    end = end_of(process, 200)
    assert end.code == 0, end.stderr
    assert len(losses([*before, *end.stdout.splitlines()])) == 72
    assert "could not save the checkpoint of step 30" in end.stdout


WITHOUT_TORCH = """
import os, sys
sys.modules["torch"] = None  # importing it raises ImportError
import numpy as np
from trainer_kit.checkpoints import arrays, groups

for attempt in (1, 2):
    os.environ["JOB_ATTEMPT"] = str(attempt)
    state = {"weights": np.zeros(1000), "losses": []}
    with arrays.kept(groups.alone(), state) as run:
        print(attempt, run.steps, state["weights"].sum(), state["losses"])
        for step in range(3):
            state["weights"] += 1
            state["losses"].append(step)
            run.step()
            run.wait()
"""


def test_a_training_without_pytorch_resumes_from_a_bucket(launcher: Launcher, server: Server) -> None:
    settings = {"CHECKPOINT_URI": "s3://training/checkpoints/9", "CHECKPOINT_EVERY_STEPS": "1"}
    code, stdout, stderr = launcher.run("-c", WITHOUT_TORCH, **settings, **server.settings)
    assert (code, stderr) == (0, "")
    assert "1 0 0.0 []\n" in stdout
    assert "2 3 3000.0 [0, 1, 2]\n" in stdout
