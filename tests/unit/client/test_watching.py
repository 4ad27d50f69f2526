"""A watch survives the loss of its connection, because the service may restart during a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest

from training_service._generated import training_service_pb2 as pb
from training_service.client import NotFound, ServerError, TrainingClient, Unavailable, Unreachable
from training_service.client.watching import Watch

if TYPE_CHECKING:
    from tests.support.blocking_client import Connect
    from tests.support.fake_service import ServerInThread

Status = pb.GetTrainingStatusResponse


def test_watch_yields_every_change_until_the_end(training: ServerInThread, client: TrainingClient) -> None:
    training.set_job(1, status=pb.queuing)
    statuses = client.watch(1)
    assert next(statuses).status == pb.queuing
    training.set_job(1, status=pb.running, progress=pb.Progress(step=1))
    assert next(statuses).progress.step == 1
    training.set_job(1, status=pb.succeed)
    assert [status.status for status in statuses] == [pb.succeed]


def test_watch_continues_after_a_restart_of_the_service(
    training: ServerInThread, client: TrainingClient
) -> None:
    training.set_job(1, status=pb.running)
    statuses = client.watch(1)
    assert next(statuses).status == pb.running
    training.die()
    training.restart()
    training.set_job(1, status=pb.succeed)
    assert [status.status for status in statuses] == [pb.succeed]
    assert len(training.service.requests) == 2


def test_watch_does_not_repeat_a_status_after_reconnecting(
    training: ServerInThread, client: TrainingClient
) -> None:
    training.set_job(1, status=pb.running)
    statuses = client.watch(1)
    seen = [next(statuses).status]
    training.die()
    training.set_job(1)  # The same status in a new version: the service sends it after the restart.
    training.restart()
    training.set_job(1, status=pb.cancelled)
    assert [*seen, *(status.status for status in statuses)] == [pb.running, pb.cancelled]


def test_watch_gives_up_on_a_service_that_stays_away(training: ServerInThread, connect: Connect) -> None:
    training.set_job(1, status=pb.running)
    with connect(training.address, patience=0) as impatient:
        statuses = impatient.watch(1)
        next(statuses)
        training.die()
        with pytest.raises(Unavailable):
            next(statuses)


def test_watch_does_not_retry_a_service_that_never_answered(
    fast_failing: None, dead_address: str, connect: Connect
) -> None:
    with connect(dead_address, patience=3600) as client, pytest.raises(Unreachable):
        next(client.watch(1))


def test_watch_of_an_unknown_job_is_not_found(client: TrainingClient) -> None:
    with pytest.raises(NotFound, match="Job 5 doesn't exist"):
        next(client.watch(5))


def test_a_server_error_ends_a_watch_at_once(training: ServerInThread, client: TrainingClient) -> None:
    training.set_job(1, status=pb.running)
    training.fail(pb.WatchTrainingRequest, grpc.StatusCode.INTERNAL, "broken")
    with pytest.raises(ServerError):
        next(client.watch(1))


def test_a_stream_closed_before_the_job_has_ended_is_an_outage() -> None:
    watch = Watch(patience=60, timeout=None)
    watch.is_news(Status(job_id=1, status=pb.running))
    with pytest.raises(Unavailable, match="before the job had ended"):
        watch.check_ended()


def test_a_stream_closed_at_an_unknown_status_of_a_newer_service_is_the_end() -> None:
    watch = Watch(patience=60, timeout=None)
    watch.is_news(Status(job_id=1, status=99))  # type: ignore[arg-type]
    watch.check_ended()


def test_patience_starts_again_with_each_status() -> None:
    watch = Watch(patience=0.001, timeout=None)
    away = Unavailable("away")
    for step in range(3):
        watch.is_news(Status(job_id=1, status=pb.running, progress=pb.Progress(step=step)))
        assert watch.pause_after(away) > 0
