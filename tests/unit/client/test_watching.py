"""A watch outlives the connection: the service may be restarted in mid-job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest

from training_service._generated import training_service_pb2 as pb
from training_service.client import NotFound, ServerError, TrainingClient, Unavailable, Unreachable
from training_service.client.watching import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.fake_service import ServerInThread

Status = pb.GetTrainingStatusResponse


@pytest.fixture
def client(training: ServerInThread) -> Iterator[TrainingClient]:
    with TrainingClient(training.address) as client:
        yield client


def test_watch_gives_every_change_until_the_end(training: ServerInThread, client: TrainingClient) -> None:
    training.tell(1, status=pb.queuing)
    statuses = client.watch(1)
    assert next(statuses).status == pb.queuing
    training.tell(1, status=pb.running, progress=pb.Progress(step=1))
    assert next(statuses).progress.step == 1
    training.tell(1, status=pb.succeed)
    assert [status.status for status in statuses] == [pb.succeed]


def test_watch_goes_on_when_the_service_dies_and_comes_back(
    training: ServerInThread, client: TrainingClient
) -> None:
    training.tell(1, status=pb.running)
    statuses = client.watch(1)
    assert next(statuses).status == pb.running
    training.die()
    training.come_back()
    training.tell(1, status=pb.succeed)
    assert [status.status for status in statuses] == [pb.succeed]
    assert len(training.service.requests) == 2


def test_watch_does_not_repeat_a_status_after_connecting_again(
    training: ServerInThread, client: TrainingClient
) -> None:
    training.tell(1, status=pb.running)
    statuses = client.watch(1)
    seen = [next(statuses).status]
    training.die()
    training.tell(1)  # A new version of the same status, so that it is sent again after the return.
    training.come_back()
    training.tell(1, status=pb.cancelled)
    assert [*seen, *(status.status for status in statuses)] == [pb.running, pb.cancelled]


def test_watch_gives_up_on_a_service_that_stays_away(training: ServerInThread) -> None:
    training.tell(1, status=pb.running)
    with TrainingClient(training.address, patience=0) as impatient:
        statuses = impatient.watch(1)
        next(statuses)
        training.die()
        with pytest.raises(Unavailable):
            next(statuses)


def test_watch_has_no_patience_with_a_service_that_was_never_there(hasty: None, dead_address: str) -> None:
    with TrainingClient(dead_address, patience=3600) as client, pytest.raises(Unreachable):
        next(client.watch(1))


def test_watch_of_an_unknown_job_is_not_found(client: TrainingClient) -> None:
    with pytest.raises(NotFound, match="Job 5 doesn't exist"):
        next(client.watch(5))


def test_other_errors_end_a_watch_at_once(training: ServerInThread, client: TrainingClient) -> None:
    training.tell(1, status=pb.running)
    training.fail(pb.WatchTrainingRequest, grpc.StatusCode.INTERNAL, "broken")
    with pytest.raises(ServerError):
        next(client.watch(1))


def test_a_stream_closed_while_the_job_goes_on_is_an_outage() -> None:
    watch = Watch(patience=60, timeout=None)
    watch.is_news(Status(job_id=1, status=pb.running))
    with pytest.raises(Unavailable, match="before the job had ended"):
        watch.check_ended()


def test_a_stream_closed_at_an_end_that_a_newer_service_invented_is_an_end() -> None:
    watch = Watch(patience=60, timeout=None)
    watch.is_news(Status(job_id=1, status=99))  # type: ignore[arg-type]
    watch.check_ended()


def test_patience_is_counted_anew_after_each_status() -> None:
    watch = Watch(patience=0.001, timeout=None)
    away = Unavailable("away")
    for step in range(3):
        watch.is_news(Status(job_id=1, status=pb.running, progress=pb.Progress(step=step)))
        assert watch.pause_after(away) > 0
