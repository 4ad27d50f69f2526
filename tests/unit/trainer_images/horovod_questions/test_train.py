"""Horovod groups without ssh, from environment variables only."""

import signal
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.trainers.frameworks import (
    GROUP_BATCH,
    KILLED,
    Trained,
    all_succeed,
    check_resumption,
    saving,
    start_horovod,
    start_horovod_rank,
)
from tests.support.trainers.launcher import Launcher, end_of


def code(body: str) -> tuple[str, str]:
    """Return arguments that run this code in a group."""
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    return "-c", (
        "import torch, horovod.torch as hvd\n"
        "from trainer_kit import horovod, process\n"
        f"def train():\n    with horovod.joined():\n{lines}\n"
        "process.run(train)"
    )


TRAIN_AND_PRINT = (
    "import hashlib, torch\n"
    "from horovod_questions import train\n"
    "from trainer_kit import process\n"
    "class Observed(torch.nn.Linear):\n"
    "    def __init__(self, *sizes):\n"
    "        super().__init__(*sizes)\n"
    "        models.append(self)\n"
    "models = []\n"
    "torch.nn.Linear = Observed\n"
    "def run():\n"
    "    train.train()\n"
    "    print(hashlib.sha256(models[0].weight.detach().numpy().tobytes()).hexdigest())\n"
    "process.run(run)"
)
"""Runs the example, and then prints its final weights."""
PAUSED = """
import os, select
from http.client import HTTPConnection
from trainer_kit import horovod

pauses = [1] if os.environ["HOROVOD_RANK"] == "1" else []

class Paused(HTTPConnection):
    def connect(self):
        super().connect()
        if pauses:
            pauses.pop()
            select.select([self.sock], [], [])

horovod.HTTPConnection = Paused
"""
"""Rank 1 connects to the master, and then is paused until the master's server closes the connection."""
SILENT = """
import time
from horovod.runner.http.http_server import RendezvousHandler

RendezvousHandler.do_GET = RendezvousHandler.do_PUT = lambda handler: time.sleep(1000)
"""
"""The server of Horovod does not answer."""


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_group_of_any_size_learns_to_classify_with_the_same_weights_in_all_processes(
    horovod: Launcher, questions_uri: str, tmp_path: Path, size: int
) -> None:
    group = start_horovod(
        horovod, size, "-c", TRAIN_AND_PRINT,
        TRAINING_DATA_URI=questions_uri, MODEL_URI=str(tmp_path / "model"),
        EPOCHS="6", BATCH_SIZE=str(GROUP_BATCH // size),
    )  # fmt: skip
    trained = Trained(tmp_path / "model", [end_of(process) for process in group])

    assert [(end.code, end.stderr) for end in trained.ends] == [(0, "")] * size
    assert len(trained.losses) == 6
    assert trained.losses[-1] < trained.losses[0] / 2
    assert trained.accuracy >= 0.8
    [weights] = {end.stdout.splitlines()[-1] for end in trained.ends}
    # Otherwise, only the master prints.
    assert [end.stdout for end in trained.ends[1:]] == [f"{weights}\n"] * (size - 1)


def test_a_killed_process_ends_the_others_and_the_next_attempt_resumes(
    horovod: Launcher, questions_uri: str, tmp_path: Path
) -> None:
    places = {"TRAINING_DATA_URI": questions_uri, "MODEL_URI": str(tmp_path / "model"), "EPOCHS": "2"}
    saved, killed = tmp_path / "checkpoints", {"KILL_AT": "47", "KILL_RANK": "1"}
    group = start_horovod(
        horovod, 3, KILLED, "horovod_questions.train", **places, **saving(saved, 1, **killed)
    )
    master, lost, other = (end_of(process) for process in group)
    assert lost.code == -signal.SIGKILL
    for survivor in (master, other):
        assert survivor.code == 1
        assert "HorovodInternalError" in survivor.stderr

    again = start_horovod(horovod, 3, "-m", "horovod_questions.train", **places, **saving(saved, 2))
    check_resumption(master, all_succeed(again)[0], killed_at=47)


def test_an_exception_in_one_process_ends_all_with_1(horovod: Launcher) -> None:
    body = "if hvd.rank() == 1: raise KeyError('lost')\nhvd.allreduce(torch.ones(1))"
    master, worker = start_horovod(horovod, 2, *code(body))
    failed, left = end_of(worker), end_of(master)
    assert failed.code == left.code == 1
    assert "KeyError: 'lost'" in failed.stderr


def test_sigterm_ends_a_process_that_waits_for_a_silent_peer(horovod: Launcher) -> None:
    body = (
        "import time\n"
        "hvd.allreduce(torch.ones(1))\n"
        "if hvd.rank() == 1: time.sleep(1000)\n"
        "print('here')\n"
        "hvd.allreduce(torch.ones(1))"
    )
    master, worker = start_horovod(horovod, 2, *code(body))
    assert master.stdout
    assert master.stdout.readline() == "here\n"
    master.terminate()
    assert end_of(master).code == 143
    worker.kill()


def test_a_process_without_a_master_gives_up(horovod: Launcher) -> None:
    port = free_port()
    ended = end_of(start_horovod_rank(horovod, 2, 1, port, *code("pass"), GROUP_TIMEOUT="1"))
    assert ended.code == 1
    assert ended.stderr.startswith(f"error: could not reach the master at 127.0.0.1:{port} within 1 s: ")


def test_a_process_that_was_paused_while_it_joined_joins_nevertheless(horovod: Launcher) -> None:
    body = "if hvd.rank() == 0: print(hvd.size())"
    master, paused = start_horovod(horovod, 2, "-c", PAUSED + code(body)[1])
    assert end_of(paused) == (0, "", "")
    assert end_of(master) == (0, "2\n", "")


@pytest.mark.parametrize("before", ["", SILENT], ids=["at once", "although its own server is slow"])
def test_a_master_reports_missing_workers(horovod: Launcher, before: str) -> None:
    port = free_port()
    program = before + code("pass")[1]
    ended = end_of(start_horovod_rank(horovod, 3, 0, port, "-c", program, GROUP_TIMEOUT="1"))
    assert ended.code == 1
    assert ended.stderr == (
        f"error: 2 of 3 processes did not connect to 127.0.0.1:{port} within 1 s: ranks 1, 2\n"
    )
