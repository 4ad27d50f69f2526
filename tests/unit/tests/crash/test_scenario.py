"""Waiting for a job tells a slow machine from a stuck service."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.crash.kept import KeptService, Stuck
from tests.crash.scenario import await_output, wait
from training_service._generated import training_service_pb2 as pb
from training_service.client import WaitTimedOut


class Waiting:
    """A service whose job 2 waits for job 1. Each time-out of a wait brings one of these states."""

    def __init__(self, *phases: tuple[int, int]) -> None:
        self.phases = [*phases]

    def ask(self, call: Callable[[Any], object]) -> object:
        return call(self)

    def list(self) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(job_id=1, status=self.phases[0][0], attempt=1),
            SimpleNamespace(job_id=2, status=self.phases[0][1], attempt=1),
        ]

    def wait(self, job_id: int, timeout: float) -> None:
        if self.phases[0][1] != pb.succeed:
            self.phases.pop(0)
            raise WaitTimedOut("not yet", pb.GetTrainingStatusResponse())


def test_a_job_that_waits_while_others_change_is_not_stuck() -> None:
    service = Waiting(
        (pb.launch, pb.queuing), (pb.running, pb.queuing), (pb.succeed, pb.running), (pb.succeed,) * 2
    )
    wait(cast(KeptService, service), 2)
    assert len(service.phases) == 1


def test_a_job_that_waits_while_no_job_changes_is_stuck() -> None:
    service = Waiting(
        (pb.launch, pb.queuing), (pb.running, pb.queuing), (pb.running, pb.queuing), (pb.succeed,) * 2
    )
    with pytest.raises(WaitTimedOut):
        wait(cast(KeptService, service), 2)


def test_a_job_whose_ranks_print_nothing_while_no_job_changes_is_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Silent(Waiting):
        def logs(self, *_: object, **__: object) -> object:
            return iter(())

        def status(self, _: int) -> pb.GetTrainingStatusResponse:
            return pb.GetTrainingStatusResponse(status=pb.running)

    monkeypatch.setattr("tests.crash.scenario.PATIENCE", 0.1)
    with pytest.raises(Stuck, match="job 2 prints nothing"):
        await_output(cast(KeptService, Silent((pb.running, pb.running))), 2, 1)
