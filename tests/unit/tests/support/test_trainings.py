import pytest

from tests.support.patience import PATIENCE
from tests.support.trainings import end_of
from training_service._generated import training_service_pb2 as pb
from training_service.client import TrainingClient
from training_service.client.errors import WaitTimedOut


class Slow(TrainingClient):
    """A client of a job that has not ended at the first waits: each of these waits ends with one status."""

    def __init__(self, *seen: pb.GetTrainingStatusResponse) -> None:
        self.seen = list(seen)
        self.waited = 0.0

    def wait(self, job_id: int, *, timeout: float | None = None) -> pb.GetTrainingStatusResponse:
        assert job_id == 1
        assert timeout is not None
        self.waited += timeout
        status = self.seen.pop(0)
        if status.status != pb.succeed:
            raise WaitTimedOut("job 1 has not ended", status)
        return status


def status(
    step: int, moves: int = 1, now: "pb.TrainingStatus.ValueType" = pb.running
) -> pb.GetTrainingStatusResponse:
    return pb.GetTrainingStatusResponse(
        status=now, progress=pb.Progress(step=step), moves=[pb.Move()] * moves
    )


def test_a_training_that_makes_steps_or_moves_is_awaited() -> None:
    client = Slow(status(5), status(6), status(6, moves=2), status(9, now=pb.succeed))
    assert end_of(client, 1).progress.step == 9
    assert client.waited == 5 * PATIENCE


def test_a_training_without_a_step_or_move_is_stuck() -> None:
    client = Slow(status(5), status(6), status(6), status(9, now=pb.succeed))
    with pytest.raises(WaitTimedOut, match="job 1 has not ended"):
        end_of(client, 1)
    assert len(client.seen) == 1


def test_a_training_without_a_first_step_is_stuck_after_twice_the_time() -> None:
    client = Slow(status(0), status(9, now=pb.succeed))
    with pytest.raises(WaitTimedOut, match="job 1 has not ended"):
        end_of(client, 1)
    assert client.waited == 2 * PATIENCE
