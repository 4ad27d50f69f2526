"""Real ranks stop making progress, and a real service finds out which one and where."""

import signal
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tests.support.patience import PATIENCE
from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from tests.support.server import Server
else:
    Server = Any

TRAINER = """
import os, pathlib, signal, time
from types import SimpleNamespace
from trainer_kit import steps
from trainer_kit.progress import reporting

def frozen():
    os.kill(os.getpid(), signal.SIGSTOP)

def wait_for_others():
    with steps.OF_PROCESS.waiting():
        time.sleep(600)

rank = int(os.environ["RANK"])
with reporting(SimpleNamespace(rank=rank, is_master=rank == 0)):
    step = 0
    while not pathlib.Path("{signal_file}").exists():
        steps.OF_PROCESS.step(step := step + 1)
        time.sleep(0.1)
    if os.environ["JOB_ATTEMPT"] == "1":
        frozen() if rank == 1 else wait_for_others()
"""
PLAIN = """
import ctypes, os, pathlib, time

def stuck_in_native_code():  # which holds the lock of the interpreter
    ctypes.PyDLL(None).pause()

def wait():
    time.sleep(600)

rank, folder = os.environ["RANK"], pathlib.Path("{folder}")
if rank == "0":  # its first report starts the deadline, so it waits until the others are about to stand still
    while not all((folder / other).exists() for other in ("1", "2")):
        time.sleep(0.02)
    print('::progress:: {"step": 1}', flush=True)
else:
    (folder / rank).touch()
stuck_in_native_code() if rank == "1" else wait()
"""
ALGORITHM = """
[algorithms.stalling]
[algorithms.stalling.process]
command = ["python", "{program}"]
"""


def test_a_frozen_rank_is_named_by_a_later_service_and_the_next_attempt_succeeds(server: Server) -> None:
    program = server.folder / "trainer.py"
    stalls = server.folder / "stalls"
    program.write_text(TRAINER.replace("{signal_file}", str(stalls)))
    with (server.folder / "config.toml").open("a") as config:
        config.write(ALGORITHM.format(program=program))
    deadlines, retry = pb.Deadlines(), pb.RetryPolicy(max_attempts=2)
    deadlines.progress.FromTimedelta(timedelta(seconds=6))
    retry.backoff.FromTimedelta(timedelta(0))
    with server.start() as client:
        job = client.submit("stalling", "1", "v1", instances=2, deadlines=deadlines, retry_policy=retry)
        for status in client.watch(job):
            if len([rank for rank in status.ranks if rank.pace.step > 1]) == 2:
                break
    server.end(signal.SIGKILL)  # the stacks are stored, and only one rank reports to the next service
    stalls.touch()
    with server.start() as client:
        ended = client.wait(job, timeout=PATIENCE)
        assert (ended.status, ended.attempt) == (pb.succeed, 2)
        [why] = [move.diagnosis for move in ended.moves if move.HasField("diagnosis")]
        assert (why.category, why.rank) == ("stalled", 1)
        assert why.summary.startswith("Rank 1 has given no sign since it reported step ")
        log = "".join(piece.text for piece in client.logs(job, attempt=1))
        assert (
            "rank 0: the service asked for the stacks of its threads, innermost call last:\nThread Main"
            in log
        )
        assert "in wait_for_others" in log
        # The frozen rank was looked at from outside.
        assert "is stopped by a signal (state T)" in why.summary
        frozen = "".join(piece.text for piece in client.logs(job, attempt=1, rank=1))
        assert "rank 1 does not answer; its process " in frozen
        assert f"{program}:8 in frozen" in frozen
        assert f"{program}:8 in frozen" in why.summary


def test_a_program_without_trainer_kit_is_looked_at_from_outside(server: Server) -> None:
    program = server.folder / "plain.py"
    program.write_text(PLAIN.replace("{folder}", str(server.folder)))
    with (server.folder / "config.toml").open("a") as config:
        config.write(ALGORITHM.format(program=program))
    deadlines = pb.Deadlines()
    deadlines.progress.FromTimedelta(timedelta(seconds=1))
    with server.start() as client:
        once = pb.RetryPolicy(max_attempts=1)
        job = client.submit("stalling", "1", "v1", instances=3, deadlines=deadlines, retry_policy=once)
        ended = client.wait(job, timeout=PATIENCE)
        why = next(move.diagnosis for move in ended.moves if move.HasField("diagnosis"))
        assert (why.category, why.rank) == ("stalled", 1)
        assert f"{program}:5 in stuck_in_native_code" in why.summary
        assert f"{program}:8 in wait" in why.detail
        logs = ["".join(each.text for each in client.logs(job, rank=rank)) for rank in range(3)]
        assert f"{program}:5 in stuck_in_native_code" in logs[1]
        assert all(f"{program}:8 in wait" in log for log in (logs[0], logs[2]))
