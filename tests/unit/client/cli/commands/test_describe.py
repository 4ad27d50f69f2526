"""trainctl describe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.timestamp_pb2 import Timestamp

from tests.support.trainctl import DIAGNOSIS
from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from tests.support.fake_service import ServerInThread
    from tests.support.trainctl import Trainctl


def test_describe_shows_the_history(training: ServerInThread, trainctl: Trainctl) -> None:
    moves = [
        pb.Move(status=pb.queuing, at=Timestamp(seconds=60)),
        pb.Move(status=pb.failure, at=Timestamp(seconds=90), attempt=1, diagnosis=DIAGNOSIS),
    ]
    training.set_job(1, status=pb.failure, diagnosis=DIAGNOSIS, moves=moves)
    history = ["1970-01-01T00:01:00Z submitted", "1970-01-01T00:01:30Z failure: It ran out of memory."]
    printed = trainctl("describe", "1").stdout
    assert printed.endswith(f"history: {history[0]}\n    {history[1]}\n")
    assert "failure: It ran out of memory." in trainctl.on_terminal("describe", "1").stdout


def test_describe_shows_the_program_and_how_much_of_it_is_not_committed(
    training: ServerInThread, trainctl: Trainctl
) -> None:
    program = pb.Program(
        tree="a" * 64,
        command=["python", "train.py"],
        changes=pb.ProgramChanges(tree="b" * 64, added=3, removed=1),
    )
    training.set_job(1, status=pb.queuing)
    training.service.submitted[1] = pb.TrainRequest(program=program)
    printed = trainctl("describe", "1").stdout
    assert "command: python train.py\n" in printed
    assert (
        f"uncommitted changes: 3 lines added, 1 removed (trainctl diff shows them), tree {'b' * 64}"
        in printed
    )
    shown = " ".join(trainctl.on_terminal("describe", "1").stdout.split())
    assert "3 lines added, 1 removed" in shown
    assert "3 lines" not in trainctl("--json", "describe", "1").stdout
