"""Attempts and deadlines over the wire."""

from datetime import timedelta

import grpc
from google.protobuf.duration_pb2 import Duration

from job_tracker.domain.diagnosis import Category
from job_tracker.domain.policies import Deadlines, RetryPolicy
from tests.support.api_service import Service, metadata
from training_service._generated import training_service_pb2 as pb

SHORTLY = Duration(nanos=50_000_000)


async def test_a_job_without_a_policy_gets_the_configured_one(untracked: Service) -> None:
    job = await untracked.store.get(await untracked.train())
    assert job.spec.retry == RetryPolicy(max_attempts=3)
    assert job.spec.deadlines == Deadlines(start=timedelta(hours=1))


async def test_values_of_a_request_override_the_configured_ones(untracked: Service) -> None:
    request = pb.TrainRequest(
        metadata=metadata(),
        retry_policy=pb.RetryPolicy(max_attempts=7, retry_on=["killed", "crashed", "crashed"]),
        deadlines=pb.Deadlines(start=Duration(), run=Duration(seconds=90)),
    )
    job = await untracked.store.get((await untracked.stub.Train(request)).job_id)
    assert job.spec.retry == RetryPolicy(max_attempts=7, retry_on=(Category.CRASHED, Category.KILLED))
    assert job.spec.deadlines == Deadlines(run=timedelta(seconds=90))
    assert (await untracked.status(job.id)).max_attempts == 7


async def test_retry_on_any_covers_every_failure(untracked: Service) -> None:
    request = pb.TrainRequest(metadata=metadata(), retry_policy=pb.RetryPolicy(retry_on=["any"]))
    job = await untracked.store.get((await untracked.stub.Train(request)).job_id)
    assert job.spec.retry.retry_on == tuple(Category)


async def test_a_repeated_request_must_have_the_same_policy(untracked: Service) -> None:
    first = pb.TrainRequest(metadata=metadata(), request_key="k", retry_policy=pb.RetryPolicy(max_attempts=2))
    job = (await untracked.stub.Train(first)).job_id
    assert (await untracked.stub.Train(first)).job_id == job
    other = pb.TrainRequest(metadata=metadata(), request_key="k", retry_policy=pb.RetryPolicy(max_attempts=3))
    details = await untracked.refuses(untracked.stub.Train(other), grpc.StatusCode.ALREADY_EXISTS)
    assert f"job {job}" in details


async def test_the_status_shows_the_attempts(service: Service) -> None:
    request = pb.TrainRequest(
        metadata=metadata({"EXIT_CODE": "3"}),
        retry_policy=pb.RetryPolicy(max_attempts=2, backoff=SHORTLY, retry_on=["crashed"]),
    )
    job_id = (await service.stub.Train(request)).job_id
    last = await service.seen(job_id, pb.failure)
    assert (last.status, last.attempt) == (pb.failure, 2)
    assert last.message.endswith("Given up after 2 attempts.")
    assert [(move.status, move.attempt, move.diagnosis.category) for move in last.moves] == [
        (pb.queuing, 0, ""),
        (pb.launch, 1, ""),
        (pb.running, 1, ""),
        (pb.queuing, 1, "crashed"),
        (pb.queuing, 1, ""),
        (pb.launch, 2, ""),
        (pb.running, 2, ""),
        (pb.failure, 2, "crashed"),
    ]
    assert not last.HasField("deadline_at")


async def test_the_status_shows_the_deadline_of_the_state(service: Service) -> None:
    deadlines = pb.Deadlines(queue=Duration(seconds=60), run=Duration(seconds=3600))
    request = pb.TrainRequest(metadata=metadata({"RUN_SECONDS": "forever"}), deadlines=deadlines)
    job_id = (await service.stub.Train(request)).job_id
    running = await service.seen(job_id, pb.running)
    assert running.deadline_at.seconds == running.started_at.seconds + 3600
    assert not running.HasField("next_attempt_at")


async def test_jobs_between_attempts_are_listed_as_queuing(service: Service) -> None:
    request = pb.TrainRequest(
        metadata=metadata({"EXIT_CODE": "3"}),
        retry_policy=pb.RetryPolicy(
            max_attempts=2,
            backoff=Duration(seconds=3600),
            max_backoff=Duration(seconds=3600),
            retry_on=["any"],
        ),
    )
    job_id = (await service.stub.Train(request)).job_id
    async for waiting in service.stub.WatchTraining(pb.WatchTrainingRequest(job_id=job_id)):
        if waiting.HasField("next_attempt_at"):
            break
    assert (waiting.status, waiting.attempt, waiting.positionInQueue) == (pb.queuing, 1, 0)
    assert waiting.message.startswith("Attempt 1 of 2 failed; the next one follows after a pause. Rank 0 ")
    assert not waiting.HasField("diagnosis")
    page = await service.stub.ListTrainingJobs(pb.ListTrainingJobsRequest(statuses=[pb.queuing]))
    assert [job.job_id for job in page.jobs] == [job_id]
    cancelled = await service.stub.CancelTraining(pb.CancelTrainingRequest(job_id=job_id))
    assert (cancelled.status, cancelled.moves[-1].status) == (pb.cancelled, pb.cancelled)
