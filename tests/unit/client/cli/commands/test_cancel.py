"""trainctl cancel."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from tests.support.fake_service import ServerInThread
    from tests.support.trainctl import Trainctl


def test_cancel_prints_the_status_of_the_job(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(1, status=pb.queuing)
    training.set_job(2, status=pb.succeed)
    assert trainctl.on_terminal("cancel", "1").stdout == "Job 1 is cancelled.\n"
    assert trainctl.on_terminal("cancel", "2").stdout == "Job 2 had already ended: succeed.\n"
    assert trainctl("cancel", "1").stdout == "job 1: cancelled\n"
    assert json.loads(trainctl("cancel", "2", "--json").stdout)["status"] == "succeed"
