"""Tags, notes, lists by tag and time, and deleted jobs, through the API."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tests.support.api_service import Serve, Service, metadata
from training_service._generated import training_service_pb2 as pb

INVALID = grpc.StatusCode.INVALID_ARGUMENT


async def train(service: Service, *tags: str, key: str = "") -> int:
    request = pb.TrainRequest(metadata=metadata(), tags=tags, request_key=key)
    return (await service.stub.Train(request)).job_id


async def annotate(service: Service, job_id: int, **change: Any) -> pb.GetTrainingStatusResponse:
    return await service.stub.AnnotateTraining(pb.AnnotateTrainingRequest(job_id=job_id, **change))


async def ids(service: Service, **wanted: Any) -> list[int]:
    page = await service.stub.ListTrainingJobs(pb.ListTrainingJobsRequest(**wanted))
    return [job.job_id for job in page.jobs]


async def test_tags_and_notes_are_in_the_status_and_in_lists(untracked: Service) -> None:
    await train(untracked, "b", "a", "b")
    await train(untracked)
    assert (await untracked.status(1)).tags == ["a", "b"]
    changed = await annotate(untracked, 1, add_tags=["c"], remove_tags=["a", "z"], note="One\nTwo ")
    assert (list(changed.tags), changed.note) == (["b", "c"], "One\nTwo")
    assert await untracked.status(1) == changed
    kept = await annotate(untracked, 1, add_tags=["c"])
    assert kept == changed, "an absent note stays, and a repetition changes nothing"
    assert (await annotate(untracked, 1, note="")).note == ""
    assert await ids(untracked, tags=["b", "c"]) == [1]
    assert await ids(untracked, tags=["a"]) == []


async def test_a_watch_shows_an_annotation(untracked: Service) -> None:
    job_id = await train(untracked)
    watch = untracked.stub.WatchTraining(pb.WatchTrainingRequest(job_id=job_id))
    statuses = aiter(watch)
    assert (await anext(statuses)).note == ""
    await annotate(untracked, job_id, note="seen")
    assert (await anext(statuses)).note == "seen"
    watch.cancel()


async def test_tags_are_part_of_a_repeatable_request_and_of_the_provenance(untracked: Service) -> None:
    first = await train(untracked, "a", key="k")
    assert await train(untracked, "a", key="k") == first
    await untracked.refuses(
        untracked.stub.Train(pb.TrainRequest(metadata=metadata(), tags=["b"], request_key="k")),
        grpc.StatusCode.ALREADY_EXISTS,
    )
    await annotate(untracked, first, add_tags=["b"])
    made = await untracked.stub.GetTrainingArtifacts(pb.GetTrainingArtifactsRequest(job_id=first))
    assert made.provenance.request.tags == ["a", "b"]
    again = await untracked.stub.Train(made.provenance.request)
    assert (await untracked.status(again.job_id)).tags == ["a", "b"]


@pytest.mark.parametrize("tag", ["", "two words", "-a", "a,b", 'a"b', "ä", "x" * 65, "a\n"])
async def test_a_tag_that_is_not_allowed_is_named(untracked: Service, tag: str) -> None:
    job_id = await train(untracked)
    calls = (
        ("tags", untracked.stub.Train(pb.TrainRequest(metadata=metadata(), tags=["ok", tag]))),
        ("tags", untracked.stub.ListTrainingJobs(pb.ListTrainingJobsRequest(tags=[tag]))),
        ("add_tags", annotate(untracked, job_id, add_tags=[tag])),
    )
    for field, call in calls:
        assert (await untracked.refuses(call, INVALID)).startswith(f"{field}: ")


async def test_tags_and_notes_are_bounded(untracked: Service) -> None:
    many = [f"t{n}" for n in range(17)]
    message = await untracked.refuses(
        untracked.stub.Train(pb.TrainRequest(metadata=metadata(), tags=many)), INVALID
    )
    assert message == "tags: makes 17 tags; a job may have at most 16"
    job_id = await train(untracked, *many[:16])
    message = await untracked.refuses(annotate(untracked, job_id, add_tags=many[16:]), INVALID)
    assert message.startswith("add_tags: makes 17 tags")
    swapped = await annotate(untracked, job_id, add_tags=many[16:], remove_tags=["t0"])
    assert len(swapped.tags) == 16
    assert (await untracked.refuses(annotate(untracked, job_id, note="x" * 1001), INVALID)).startswith(
        "note: "
    )
    assert "printable" in await untracked.refuses(annotate(untracked, job_id, note="a\x1b[2J"), INVALID)


async def test_concurrent_annotations_lose_nothing(untracked: Service) -> None:
    job_id = await train(untracked)
    await asyncio.gather(*(annotate(untracked, job_id, add_tags=[f"t{n}"]) for n in range(12)))
    assert len((await untracked.status(job_id)).tags) == 12


async def test_lists_by_time_by_the_caller_and_before_a_job(untracked: Service) -> None:
    for _ in range(3):
        await train(untracked)
    now, later = Timestamp(), Timestamp()
    now.FromDatetime(datetime.now(UTC) - timedelta(hours=2))
    later.FromDatetime(datetime.now(UTC) + timedelta(hours=2))
    second = (await untracked.status(2)).submitted_at
    assert await ids(untracked, submitted_since=now, submitted_before=later) == [3, 2, 1]
    assert await ids(untracked, submitted_since=later) == await ids(untracked, submitted_before=now) == []
    assert await ids(untracked, submitted_since=second) == [3, 2]
    assert await ids(untracked, submitted_before=second) == [1]
    assert await ids(untracked, mine=True, before_job=3) == [2, 1]
    assert await ids(untracked, before_job=3, page_token="2") == [1]
    for field, wanted in (
        ("submitted_by", {"mine": True, "submitted_by": "ada"}),
        ("before_job", {"before_job": -1}),
        ("submitted_since", {"submitted_since": Timestamp(seconds=10**15)}),
    ):
        call = untracked.stub.ListTrainingJobs(pb.ListTrainingJobsRequest(**wanted))
        assert (await untracked.refuses(call, INVALID)).startswith(f"{field}: ")


async def test_an_ended_job_is_deleted_for_good(serve: Serve) -> None:
    service = await serve(tracked=False)
    job_id = await train(service, "a", key="k")
    delete = pb.DeleteTrainingRequest(job_id=job_id)
    message = await service.refuses(service.stub.DeleteTraining(delete), grpc.StatusCode.FAILED_PRECONDITION)
    assert message == f"job {job_id} is queued; cancel it, and delete it when it has ended"
    await service.stub.CancelTraining(pb.CancelTrainingRequest(job_id=job_id))
    await service.stub.DeleteTraining(delete)
    await service.refuses(service.stub.DeleteTraining(delete), grpc.StatusCode.NOT_FOUND)
    await service.refuses(service.status(job_id), grpc.StatusCode.NOT_FOUND)
    assert await ids(service) == await ids(service, tags=["a"]) == []
    assert await train(service, key="k") == job_id + 1, "the key is free again, the id is not"
