"""A request repeated with its key gives the same job: concurrently, later, and after a restart."""

import asyncio

import grpc
import pytest

from tests.support.api_service import Serve, Service
from training_service._generated import training_service_pb2 as pb

OTHERS: tuple[tuple[dict[str, str], dict[str, str]], ...] = (
    ({"EPOCHS": "3"}, {}),
    ({"EPOCHS": "2", "NOTE": ""}, {}),
    ({}, {}),
    ({"EPOCHS": "2"}, {"name": "another"}),
    ({"EPOCHS": "2"}, {"output_model_name": "another"}),
)


async def test_the_same_request_with_the_same_key_is_the_same_job(untracked: Service) -> None:
    first = await untracked.train({"EPOCHS": "2", "LR": "1"}, "monday")
    before = await untracked.written()
    assert await untracked.train({"LR": "1", "EPOCHS": "2"}, "monday") == first
    assert await untracked.written() == before


async def test_the_same_request_with_another_key_or_none_is_another_job(untracked: Service) -> None:
    assert [await untracked.train({}, key) for key in ("monday", "tuesday", "", "")] == [1, 2, 3, 4]


async def test_another_request_with_the_same_key_is_refused_naming_the_job(untracked: Service) -> None:
    await untracked.train({"EPOCHS": "2"}, "monday")
    for parameters, changes in OTHERS:
        call = untracked.train(parameters, "monday", **changes)
        details = await untracked.refuses(call, grpc.StatusCode.ALREADY_EXISTS)
        assert details == (
            "request_key: 'monday' was used for job 1, which was submitted with other metadata; "
            "choose a new key for a new request"
        )


async def test_a_refused_request_does_not_use_its_key(untracked: Service) -> None:
    await untracked.refuses(untracked.train({"EPOCHS": "0"}, "monday"), grpc.StatusCode.INVALID_ARGUMENT)
    assert await untracked.train({"EPOCHS": "1"}, "monday") == 1


@pytest.mark.parametrize("key", ["k", "x" * 128, "🔑 of Zoë's", "'; DROP TABLE jobs; --", "a" * 64 + "%s{}"])
async def test_a_key_may_be_any_printable_text(untracked: Service, key: str) -> None:
    assert await untracked.train({}, key) == await untracked.train({}, key) == 1


async def test_64_concurrent_requests_with_one_key_are_one_job(untracked: Service) -> None:
    job_ids = await asyncio.gather(*(untracked.train({"EPOCHS": "2"}, "monday") for _ in range(64)))
    assert set(job_ids) == {1}
    (_, newest, _) = await untracked.written()
    assert newest == 1


async def test_one_of_64_different_concurrent_requests_with_one_key_wins(untracked: Service) -> None:
    answers = await asyncio.gather(
        *(untracked.train({"EPOCHS": str(n + 1)}, "monday") for n in range(64)), return_exceptions=True
    )
    errors = [answer for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
    assert [answer for answer in answers if answer not in errors] == [1]
    assert {error.code() for error in errors} == {grpc.StatusCode.ALREADY_EXISTS}
    assert (await untracked.written())[1] == 1


async def test_64_concurrent_requests_without_a_key_are_64_jobs(untracked: Service) -> None:
    assert sorted(await asyncio.gather(*(untracked.train() for _ in range(64)))) == list(range(1, 65))


async def test_a_key_is_remembered_after_a_restart(serve: Serve) -> None:
    service = await serve()
    await service.seen(await service.train({"EPOCHS": "2"}, "monday"), pb.succeed)
    await service.stop()
    again = await serve()
    assert await again.train({"EPOCHS": "2"}, "monday") == 1
    await again.refuses(again.train({"EPOCHS": "3"}, "monday"), grpc.StatusCode.ALREADY_EXISTS)
    assert await again.train({"EPOCHS": "3"}, "tuesday") == 2


async def test_a_repeated_request_gets_its_job_even_if_it_would_now_be_refused(
    serve: Serve,
) -> None:
    service = await serve(tracked=False, scheduling={"max_queued": 1})
    assert await service.train({}, "monday") == 1
    assert await service.train({}, "monday") == 1
    await service.stop()
    strange = await serve(tracked=False, algorithms={})
    assert await strange.train({}, "monday") == 1
