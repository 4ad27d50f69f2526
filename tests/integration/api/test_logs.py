"""Logs over the API: of one or all ranks, with times, from a time or a position; and refused requests."""

from collections.abc import Sequence
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from job_tracker.common.printable import quoted
from job_tracker.logs.archive import LogArchive
from tests.support.api_service import Service
from tests.support.logs import NOON, SECOND, pieces_of, records
from training_service import job_opening
from training_service._generated import training_service_pb2 as pb

TIME = "2026-11-21T12:00:00.500000000Z"
NO_POSITIONS = (
    *("1" * 5000, "0" * 5000, "0" * 12 + "1" * 5000, "0" * 11 + "1", "1" * 11, "-1", "1.5", "١", "0x1"),
    *(f"1 {'0' * 5000}={TIME}", f"1 {'9' * 5000}={TIME}", f"1 {2**31}={TIME}", f"1 ={TIME}", "1 0=", "1 0"),
    *("1 0=2026-13-41T12:00:00.500000000Z", "1 0=9999-99-99T99:99:99.999999999Z"),
    *("1 0=0000-00-00T00:00:00.000000000Z", "1 0=1969-12-31T23:59:59.999999999Z", f"1 0={'9' * 5000}"),
    *(f"1 0={TIME}\n", f"1  0={TIME}", f" 1 0={TIME}", "1 ", "1 \x00", "1 0=\u202e"),
)


@pytest.fixture
def archive(service: Service) -> LogArchive:
    return job_opening.log_archive(service.settings)


@pytest.fixture
async def job(service: Service, archive: LogArchive) -> int:
    """A job of two ranks that ended long ago."""
    job_id = await service.train({"PARALLEL_INSTANCES": "2"})
    await service.seen(job_id, pb.succeed)
    for rank, lines in enumerate((["a", "c", "e"], ["b", "d"])):
        group = (await service.store.get(job_id)).group
        await archive.write(group, rank, pieces_of([records(*lines, first=rank / 2)]))
    return job_id


async def logs(service: Service, job_id: int, **wanted: Any) -> Sequence[pb.GetTrainingLogsResponse]:
    request = pb.GetTrainingLogsRequest(job_id=job_id, **wanted)
    return [piece async for piece in service.stub.GetTrainingLogs(request)]


async def text(service: Service, job_id: int, **wanted: Any) -> str:
    return "".join(piece.text for piece in await logs(service, job_id, **wanted))


async def test_the_log_of_an_ended_job_is_served(service: Service, job: int) -> None:
    assert await text(service, job) == "a\nc\ne\n"
    assert await text(service, job, rank=1, follow=True) == "b\nd\n"
    assert await text(service, job, tail_lines=2) == "c\ne\n"


async def test_all_ranks_are_merged_by_time(service: Service, job: int) -> None:
    found = [(piece.rank, piece.attempt, piece.text) for piece in await logs(service, job, all_ranks=True)]
    assert found == [(0, 1, "a\n"), (1, 1, "b\n"), (0, 1, "c\n"), (1, 1, "d\n"), (0, 1, "e\n")]


async def test_lines_have_their_times_on_request(service: Service, job: int) -> None:
    assert await text(service, job, rank=1, timestamps=True) == (
        "2026-11-21T12:00:00.500000000Z b\n2026-11-21T12:00:01.500000000Z d\n"
    )


async def test_reading_begins_after_a_time_or_a_position(service: Service, job: int) -> None:
    second = NOON // SECOND + 1
    assert await text(service, job, all_ranks=True, since=Timestamp(seconds=second)) == "d\ne\n"
    assert await text(service, job, since=Timestamp(seconds=-62135596800)) == "a\nc\ne\n"
    pieces = await logs(service, job, all_ranks=True)
    assert await text(service, job, all_ranks=True, position=pieces[1].position) == "c\nd\ne\n"
    assert await text(service, job, position=pieces[-1].position) == ""


@pytest.mark.parametrize(
    ("wanted", "details"),
    [
        ({"position": "x"}, "position: 'x' is not allowed; send the position of an earlier response"),
        ({"position": "1", "tail_lines": 3}, "tail_lines: 3 is not allowed with position"),
        ({"position": "7"}, "position: '7' belongs to a different attempt than the request"),
        *(({"position": text}, f"position: {quoted(text)} is not allowed") for text in NO_POSITIONS),
        (
            {"position": f"1 0={TIME} 2={TIME}"},
            "position: rank 2 is not a rank of job 1; send the position of an",
        ),
        ({"rank": 1, "all_ranks": True}, "rank: 1 is not allowed with all_ranks"),
        ({"since": Timestamp(seconds=2**60)}, "since: 1152921504606846976 s, 0 ns is not allowed"),
    ],
)
async def test_invalid_requests_are_refused(
    service: Service, job: int, wanted: dict[str, Any], details: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await logs(service, job, **wanted)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (caught.value.details() or "").startswith(details)


@pytest.mark.parametrize("written", [b"\xff\xb4" * 15, b"thirty bytes that are not time"])
async def test_a_log_with_foreign_bytes_is_read_and_gives_valid_positions(
    service: Service, job: int, archive: LogArchive, written: bytes
) -> None:
    group = (await service.store.get(job)).group
    await archive.write(group, 0, pieces_of([records("a") + written + b" F b\n"]))
    [piece] = await logs(service, job)
    assert piece.text == "a\nb\n"
    assert await text(service, job, position=piece.position) == "a\nb\n"


async def test_unreadable_storage_is_unavailable(service: Service, job: int) -> None:
    of_job = (await service.store.get(job)).folder
    folder = service.settings.storage.data_dir / "storage" / "logs" / of_job / "1"
    (folder / "0.log.gz").write_bytes(b"damaged")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await logs(service, job)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
