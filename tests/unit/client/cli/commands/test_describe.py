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
