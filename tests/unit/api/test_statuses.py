"""Status messages are kept until their job changes, and only small ones."""

from dataclasses import replace

import pytest

from job_tracker.domain.job import new_job
from job_tracker.jobs import JobView
from tests.support.jobs import NOON, spec
from training_service._generated import training_service_pb2 as pb
from training_service.api.convert.jobs import status_of
from training_service.api.statuses import Statuses

JOB = new_job(7, spec(), NOON)


@pytest.fixture
def statuses() -> Statuses:
    return Statuses()


def test_a_job_that_has_not_changed_gets_the_message_that_was_made_before(statuses: Statuses) -> None:
    first = statuses.of(JobView(JOB, 3))
    assert first == status_of(JobView(JOB, 3)).SerializeToString()
    assert statuses.of(JobView(JOB, 3)) is first


def test_a_changed_job_gets_a_new_message(statuses: Statuses) -> None:
    statuses.of(JobView(JOB, 3))
    message = pb.GetTrainingStatusResponse.FromString(statuses.of(JobView(JOB.admitted(NOON), 0)))
    assert message.status == pb.launch


def test_a_job_that_moved_in_the_queue_gets_a_new_message(statuses: Statuses) -> None:
    statuses.of(JobView(JOB, 3))
    message = pb.GetTrainingStatusResponse.FromString(statuses.of(JobView(JOB, 2)))
    assert message.positionInQueue == 2


def test_a_large_message_is_not_kept(statuses: Statuses) -> None:
    view = JobView(replace(JOB, spec=spec({"TEXT": "x" * 4000})), 3)
    assert statuses.of(view) == statuses.of(view)
    assert statuses.of(view) is not statuses.of(view)


def test_the_number_of_kept_messages_is_bounded(statuses: Statuses) -> None:
    views = [JobView(replace(JOB, id=job_id), 0) for job_id in range(1, 5001)]
    first = statuses.of(views[0])
    for view in views:
        statuses.of(view)
    assert statuses.of(views[0]) is not first
