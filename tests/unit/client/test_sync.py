"""The behaviour of both clients: the plain one is generated from the async one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import UUID

import grpc
import pytest

from training_service._generated import training_service_pb2 as pb
from training_service.client import (
    AlreadyExists,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidRequest,
    NotAllowed,
    NotFound,
    ResourceExhausted,
    ServerError,
    TrainingClient,
    TrainingServiceError,
    Unavailable,
    Unreachable,
    WaitTimedOut,
)

if TYPE_CHECKING:
    from tests.support.blocking_client import Connect
    from tests.support.fake_service import ServerInThread


def test_submit_sends_all_arguments_and_returns_the_job_id(
    training: ServerInThread, client: TrainingClient
) -> None:
    job_id = client.submit(
        "intent-classification",
        "questions",
        "3f2a9c",
        name="nightly",
        parameters={"LR": 0.1, "EPOCHS": 5, "SHUFFLE": True, "NOTE": "a=b"},
        instances=3,
        output_model_name="intent",
        request_key="monday",
    )
    assert job_id == 1
    assert training.service.requests == [
        pb.TrainRequest(
            metadata=pb.TrainingJobMetadata(
                algorithm="intent-classification",
                dataset_id="questions",
                train_data_version_hash="3f2a9c",
                name="nightly",
                parameters={
                    "LR": "0.1",
                    "EPOCHS": "5",
                    "SHUFFLE": "true",
                    "NOTE": "a=b",
                    "PARALLEL_INSTANCES": "3",
                },
                output_model_name="intent",
            ),
            request_key="monday",
        )
    ]


def test_each_submission_without_a_key_gets_a_new_key(
    training: ServerInThread, client: TrainingClient
) -> None:
    assert [client.submit("a", "d", "v"), client.submit("a", "d", "v")] == [1, 2]
    keys = {UUID(request.request_key) for request in training.service.requests}
    assert len(keys) == 2


def test_a_submission_whose_answer_is_lost_is_retried_with_its_key_and_queues_one_job(
    training: ServerInThread, client: TrainingClient
) -> None:
    training.fail(pb.TrainRequest, grpc.StatusCode.UNAVAILABLE, "died", times=2, after_effect=True)
    assert client.submit("a", "d", "v") == 1
    assert len(training.service.requests) == 3
    assert len({request.request_key for request in training.service.requests}) == 1
    assert list(training.service.jobs) == [1]


def test_instances_given_twice_are_an_invalid_request(client: TrainingClient) -> None:
    with pytest.raises(InvalidRequest, match="not both"):
        client.submit("a", "d", "v", instances=2, parameters={"PARALLEL_INSTANCES": 3})


def test_status_returns_the_message(training: ServerInThread, client: TrainingClient) -> None:
    training.set_job(7, status=pb.running, message="going well")
    assert client.status(7) == pb.GetTrainingStatusResponse(job_id=7, status=pb.running, message="going well")


@pytest.mark.parametrize("job_id", [2**31, -(2**40), "seven"])
def test_a_job_id_that_protobuf_cannot_encode_is_an_invalid_request(
    client: TrainingClient, job_id: Any
) -> None:
    with pytest.raises(InvalidRequest):
        client.status(job_id)


def test_text_that_protobuf_cannot_encode_is_an_invalid_request(client: TrainingClient) -> None:
    with pytest.raises(InvalidRequest):
        client.submit("a", "d", "v", name="\udcff")


def test_list_fetches_a_page_when_the_iteration_reaches_it(
    training: ServerInThread, client: TrainingClient
) -> None:
    for job_id in range(1, 8):
        training.set_job(job_id)
    found = client.list(page_size=3)
    assert training.service.requests == []
    assert [job.job_id for job in islice(found, 3)] == [7, 6, 5]
    assert len(training.service.requests) == 1
    assert [job.job_id for job in found] == [4, 3, 2, 1]
    assert [request.page_token for request in training.service.requests] == ["", "3", "6"]


def test_list_sends_its_filters_with_every_page(training: ServerInThread, client: TrainingClient) -> None:
    for job_id in range(1, 7):
        training.set_job(
            job_id,
            status=pb.running if job_id % 2 else pb.succeed,
            metadata=pb.TrainingJobMetadata(name=f"nightly-{job_id}", algorithm="bert"),
        )
    training.set_job(9, status=pb.running, metadata=pb.TrainingJobMetadata(name="other", algorithm="bert"))
    found = client.list([pb.running], name_prefix="nightly", algorithm="bert", page_size=1)
    assert [job.job_id for job in found] == [5, 3, 1]


def test_cancel_may_be_repeated(training: ServerInThread, client: TrainingClient) -> None:
    training.set_job(1, status=pb.running)
    assert client.cancel(1).status == pb.cancelled
    assert client.cancel(1).status == pb.cancelled


def test_wait_returns_the_last_status(training: ServerInThread, client: TrainingClient) -> None:
    training.set_job(1, status=pb.failure, message="it broke")
    assert client.wait(1, timeout=10).message == "it broke"


@pytest.mark.parametrize("timeout", [0, 0.1])
def test_wait_times_out(training: ServerInThread, client: TrainingClient, timeout: float) -> None:
    training.set_job(1, status=pb.running)
    with pytest.raises(WaitTimedOut, match=f"job 1 has not ended within {timeout:g} s") as caught:
        client.wait(1, timeout=timeout)
    assert caught.value.status.status == pb.running


def test_wait_with_a_timeout_of_zero_sees_that_a_job_has_ended(
    training: ServerInThread, client: TrainingClient
) -> None:
    training.set_job(1, status=pb.succeed)
    assert client.wait(1, timeout=0).status == pb.succeed


def test_logs_are_read_by_rank_and_from_the_end(training: ServerInThread, client: TrainingClient) -> None:
    training.set_job(1, status=pb.running)
    training.print(1, "one\n", "two\n", "three\n", rank=2)
    assert [chunk.text for chunk in client.logs(1, rank=2)] == ["one\n", "two\n", "three\n"]
    assert [chunk.text for chunk in client.logs(1, rank=2, tail_lines=1)] == ["three\n"]
    assert list(client.logs(1, rank=2, tail_lines=0)) == []


def test_logs_follow_a_job_to_its_end(training: ServerInThread, client: TrainingClient) -> None:
    training.set_job(1, status=pb.queuing)
    training.print(1, "first\n")
    chunks = client.logs(1, follow=True)
    assert next(chunks).text == "first\n"
    training.print(1, "second\n")
    assert next(chunks).text == "second\n"
    training.set_job(1, status=pb.succeed)
    assert list(chunks) == []


def test_a_log_that_breaks_continues_after_its_last_line(
    training: ServerInThread, client: TrainingClient
) -> None:
    training.set_job(1)
    training.print(1, "one\n", "two\n", "three\n", "four\n")
    training.service.logs_break_after = 1
    chunks = client.logs(1, tail_lines=3)
    assert [chunk.text for chunk in chunks] == ["two\n", "three\n", "four\n"]
    asked = [(request.position, request.HasField("tail_lines")) for request in training.service.requests]
    assert asked == [("", True), ("2", False), ("3", False)]


def test_a_log_continues_after_a_restart_of_the_service(
    training: ServerInThread, client: TrainingClient
) -> None:
    training.set_job(1, status=pb.running)
    training.print(1, "one\n")
    chunks = client.logs(1, follow=True)
    assert next(chunks).text == "one\n"
    training.die()
    training.restart()
    training.print(1, "two\n")
    training.set_job(1, status=pb.succeed)
    assert [chunk.text for chunk in chunks] == ["two\n"]


def test_a_log_gives_up_on_a_service_that_stays_away(training: ServerInThread, connect: Connect) -> None:
    training.set_job(1, status=pb.running)
    training.print(1, "one\n")
    with connect(training.address, patience=0) as client:
        chunks = client.logs(1, follow=True)
        assert next(chunks).text == "one\n"
        training.die()
        with pytest.raises(Unavailable):
            next(chunks)


def test_logs_sends_its_options(training: ServerInThread, client: TrainingClient) -> None:
    training.set_job(1)
    list(client.logs(1, all_ranks=True, timestamps=True, since=datetime(2026, 11, 21, 12, tzinfo=UTC)))
    (request,) = training.service.requests
    assert (request.all_ranks, request.timestamps) == (True, True)
    assert request.since.ToJsonString() == "2026-11-21T12:00:00Z"


def test_a_log_from_a_service_without_positions_is_not_retried(
    training: ServerInThread, client: TrainingClient
) -> None:
    training.set_job(1)
    training.print(1, "one\n", "two\n")
    training.service.logs_break_after = 1
    training.service.knows_positions = False
    chunks = client.logs(1)
    assert next(chunks).text == "one\n"
    with pytest.raises(Unavailable, match="going away"):
        next(chunks)
    assert len(training.service.requests) == 1


def test_a_log_whose_service_goes_away_before_the_first_line_is_unavailable(
    fast_failing: None, training: ServerInThread, client: TrainingClient
) -> None:
    training.set_job(1, status=pb.running)
    with ThreadPoolExecutor() as threads:
        gone = threads.submit(training.do, training.server.die_at_first_call())
        with pytest.raises(Unavailable):  # It does not wait forever.
            next(client.logs(1, follow=True))
        gone.result()


def test_a_log_is_retried_until_its_first_line(training: ServerInThread, client: TrainingClient) -> None:
    training.set_job(1, status=pb.running)
    training.fail(pb.GetTrainingLogsRequest, grpc.StatusCode.UNAVAILABLE, "starting", times=2)
    training.print(1, "one\n")
    assert next(client.logs(1, follow=True)).text == "one\n"
    assert len(training.service.requests) == 3


def test_leaving_a_stream_ends_it_at_the_server(training: ServerInThread, client: TrainingClient) -> None:
    training.set_job(1, status=pb.running)
    for status in client.watch(1):
        assert status.status == pb.running
        break
    # When the service closes, it checks that no call is open.


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidRequest),
        (grpc.StatusCode.NOT_FOUND, NotFound),
        (grpc.StatusCode.ALREADY_EXISTS, AlreadyExists),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, ResourceExhausted),
        (grpc.StatusCode.FAILED_PRECONDITION, FailedPrecondition),
        (grpc.StatusCode.PERMISSION_DENIED, NotAllowed),
    ],
)
def test_an_error_has_the_text_of_the_service_and_its_cause(
    training: ServerInThread, client: TrainingClient, code: grpc.StatusCode, error: type[TrainingServiceError]
) -> None:
    training.fail(pb.GetTrainingStatusRequest, code, "the reason")
    with pytest.raises(error, match=r"^the reason$") as caught:
        client.status(1)
    assert type(caught.value) is error
    assert isinstance(caught.value.__cause__, grpc.RpcError)


def test_an_internal_error_names_the_service_and_the_failure(
    training: ServerInThread, client: TrainingClient
) -> None:
    training.fail(pb.GetTrainingStatusRequest, grpc.StatusCode.INTERNAL, "request 17 failed")
    with pytest.raises(ServerError, match=rf"{training.address} failed: request 17 failed \(INTERNAL\)"):
        client.status(1)


def test_a_call_to_a_service_that_is_starting_is_retried(
    training: ServerInThread, client: TrainingClient
) -> None:
    training.set_job(1, status=pb.running)
    training.fail(pb.GetTrainingStatusRequest, grpc.StatusCode.UNAVAILABLE, "starting", times=2)
    assert client.status(1).status == pb.running


def test_an_address_that_refuses_connections_is_unreachable(
    fast_failing: None, dead_address: str, connect: Connect
) -> None:
    with (
        connect(dead_address) as client,
        pytest.raises(
            Unreachable, match=f"^cannot reach the training service at {dead_address}: Connection refused$"
        ),
    ):
        client.status(1)


def test_a_name_that_does_not_resolve_is_unreachable(connect: Connect) -> None:
    with connect("http://localhost:51001") as client, pytest.raises(Unreachable):
        client.status(1)


def test_a_call_times_out(silent_address: str, connect: Connect) -> None:
    with connect(silent_address, timeout=0.1) as client, pytest.raises(DeadlineExceeded):
        client.status(1)


def test_the_address_is_the_argument_the_environment_variable_or_the_default(
    monkeypatch: pytest.MonkeyPatch, connect: Connect
) -> None:
    monkeypatch.setenv("TRAINING_SERVICE_ADDRESS", "from.environment:1")
    with connect() as client, connect("given:2") as other:
        assert (client.address, other.address) == ("from.environment:1", "given:2")
    monkeypatch.setenv("TRAINING_SERVICE_ADDRESS", "")
    with connect() as client:
        assert client.address == "127.0.0.1:51001"
