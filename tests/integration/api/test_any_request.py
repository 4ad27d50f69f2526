"""Generated requests become jobs that run, or errors that name the field."""

import re
import unicodedata
from collections.abc import AsyncIterable, Awaitable
from typing import Any

import grpc
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tests.support.api_service import CAPACITY, Service
from training_service._generated import training_service_pb2 as pb

ALLOWED_CODES = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
NAMES_A_FIELD = re.compile(
    r"(algorithm|dataset_id|train_data_version_hash|name|output_model_name|request_key|request"
    r"|parameters(\..*)?): ."
)
_SUPPRESSED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]

NASTY = st.sampled_from(
    [
        *("", " ", "..", "a/../b", "/etc/passwd", "%2e%2e", "\x00", "s3://b/k", "github::x", "{0.__class__}"),
        *("😀", "\u202eabc", "a\u200bb", "ﬁ", "Å", "A\u030a", "\u0301", "ＲＡＮＫ", "1" * 400, "x" * 5000),
    ]
)
ANYTHING = st.one_of(NASTY, st.text(max_size=200))
GOOD_FIELDS = st.fixed_dictionaries(
    {
        "algorithm": st.just("program"),
        "dataset_id": st.just("1"),
        "train_data_version_hash": st.just("v1"),
        "name": st.from_regex(r"[a-zA-Z0-9åéø語][a-zA-Z0-9åéø語 ._-]{0,20}", fullmatch=True),
        "output_model_name": st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_=+-]{0,20}", fullmatch=True),
    }
)
GOOD_PARAMETERS = st.fixed_dictionaries(
    {},
    optional={
        "PARALLEL_INSTANCES": st.integers(1, CAPACITY).map(str),
        "EPOCHS": st.integers(1, 10_000).map(str),
        "SEED": st.integers(0, 2**31 - 1).map(str),
        "LR": st.floats(0, 1000, exclude_min=True, allow_subnormal=False).map(repr),
        "SHUFFLE": st.sampled_from(["true", "false", "0", "1"]),
        "OPTIMISER": st.sampled_from(["sgd", "adam"]),
        "NOTE": st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=30),
    },
)
WRONG_FIELDS = st.dictionaries(
    st.sampled_from(["algorithm", "dataset_id", "train_data_version_hash", "name", "output_model_name"]),
    st.one_of(st.just("strict"), ANYTHING),
    min_size=1,
    max_size=2,
)
WRONG_PARAMETERS = st.dictionaries(
    st.one_of(
        st.sampled_from(["PARALLEL_INSTANCES", "EPOCHS", "SEED", "LR", "SHUFFLE", "OPTIMISER", "NOTE"]),
        st.sampled_from(
            ["RANK", "PATH", "LD_PRELOAD", "JOB_ID", "TRAINING_X", "AWS_X", "http_proxy", "rank"]
        ),
        st.sampled_from(["ld_preload", "BASH_FUNC_x%%", "PYTHONPATH", "A=B", "_", "MODE_OF_THE_SITE"]),
        st.from_regex(r"[A-Za-z_]{1,8}", fullmatch=True),
        ANYTHING,
    ),
    st.one_of(st.integers(-1, 10_001).map(str), st.floats().map(repr), ANYTHING),
    min_size=1,
    max_size=2,
)
NONE: st.SearchStrategy[dict[str, str]] = st.just({})
REQUESTS = st.builds(
    lambda fields, other_fields, parameters, other_parameters, key: pb.TrainRequest(
        metadata=pb.TrainingJobMetadata(
            **{**fields, **other_fields}, parameters={**parameters, **other_parameters}
        ),
        request_key=key,
    ),
    GOOD_FIELDS,
    NONE | NONE | WRONG_FIELDS,
    GOOD_PARAMETERS,
    NONE | NONE | WRONG_PARAMETERS,
    st.one_of(st.just(""), st.just(""), st.sampled_from(["monday", "tuesday"]), ANYTHING),
)


@settings(max_examples=400, suppress_health_check=_SUPPRESSED)
@given(request=REQUESTS)
async def test_a_request_becomes_a_job_that_runs_or_an_error_that_names_the_field(
    service: Service, request: pb.TrainRequest
) -> None:
    before = await service.written()
    newest = before[1]
    answer, error = await outcome(service.stub.Train(request))
    if error is not None:
        event(f"refused: {error.code().name}")
        assert error.code() in ALLOWED_CODES, error
        details = error.details() or ""
        assert NAMES_A_FIELD.match(details), details
        assert details.isprintable()
        assert await service.written() == before
        return
    event("accepted")
    job_id = answer.job_id
    if job_id <= newest:
        assert request.request_key, "only a request with a key may have been seen before"
        assert await service.written() == before
    else:
        assert job_id == newest + 1
    status = await service.seen(job_id, pb.succeed)
    assert status.job_id == job_id
    assert_echoed(status.metadata, request.metadata)
    sent = request.metadata.parameters
    assert status.instances == len(status.ranks) == int(sent.get("PARALLEL_INSTANCES", "1"))


def assert_echoed(got: Any, sent: Any) -> None:
    """An accepted request is returned as sent, and its values are safe in paths."""
    assert (got.algorithm, got.dataset_id) == (sent.algorithm, sent.dataset_id)
    assert got.train_data_version_hash == sent.train_data_version_hash
    assert dict(got.parameters) == dict(sent.parameters)
    assert got.name == (unicodedata.normalize("NFC", sent.name).strip() or sent.algorithm)
    assert sent.output_model_name in ("", got.output_model_name)
    for part in (got.dataset_id, got.train_data_version_hash, got.output_model_name):
        assert re.fullmatch(r"[\w.=+-]{1,128}", part, re.ASCII)
        assert ".." not in part


IDS = st.one_of(st.integers(-(2**31), 2**31 - 1), st.integers(-1, 3))


@settings(max_examples=60, suppress_health_check=_SUPPRESSED)
@given(job_id=IDS, rank=IDS, tail_lines=st.one_of(st.none(), IDS), method=st.sampled_from(["logs", "status"]))
async def test_any_request_about_a_job_is_answered_or_refused(
    service: Service, job_id: int, rank: int, tail_lines: int | None, method: str
) -> None:
    if (await service.written())[1] == 0:
        await service.seen(await service.train({"PARALLEL_INSTANCES": "2"}), pb.succeed)
    if method == "status":
        call: Awaitable[Any] = service.status(job_id)
    else:
        request = pb.GetTrainingLogsRequest(job_id=job_id, rank=rank, tail_lines=tail_lines)
        call = everything(service.stub.GetTrainingLogs(request))
    _, error = await outcome(call)
    if job_id != 1:
        assert error is not None
        assert error.code() is grpc.StatusCode.NOT_FOUND
        assert error.details() == f"Job {job_id} doesn't exist"
    elif method == "status" or (rank in (0, 1) and (tail_lines or 0) >= 0):
        assert error is None
    else:
        assert error is not None
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert re.match(r"(rank|tail_lines): -?\d+ is ", error.details() or "")


@settings(max_examples=100, suppress_health_check=_SUPPRESSED)
@given(
    page_size=st.one_of(IDS, st.integers(0, 1000)),
    page_token=st.one_of(st.just(""), st.integers(0, 10**25).map(str), NASTY, st.text(max_size=30)),
    name_prefix=st.one_of(st.just(""), NASTY, st.text(max_size=30)),
    statuses=st.lists(st.integers(0, 7), max_size=8),
)
async def test_any_listing_is_answered_or_refused(
    service: Service, page_size: int, page_token: str, name_prefix: str, statuses: list[int]
) -> None:
    request = pb.ListTrainingJobsRequest(page_size=page_size, page_token=page_token, name_prefix=name_prefix)
    request.statuses.extend(statuses)  # type: ignore[arg-type]
    wrong = {
        "page_size": not 0 <= page_size <= 1000,
        "page_token": bool(page_token) and re.fullmatch("[0-9]+", page_token) is None,
        "statuses": any(status > pb.cancelled for status in statuses),
    }
    _, error = await outcome(service.stub.ListTrainingJobs(request))
    if error is None:
        assert not any(wrong.values())
    else:
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert wrong[(error.details() or "").partition(":")[0]], error.details()


async def outcome(call: Awaitable[Any]) -> tuple[Any, grpc.aio.AioRpcError | None]:
    """The result of the call, or its error."""
    try:
        return await call, None
    except grpc.aio.AioRpcError as error:
        return None, error


async def everything(stream: AsyncIterable[Any]) -> list[Any]:
    """All messages of a stream."""
    return [message async for message in stream]
