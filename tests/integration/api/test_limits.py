"""Limits at a real server: what is refused, what the error says, and how our clients wait."""

import asyncio
import logging
from datetime import timedelta
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from job_tracker.access import tokens
from job_tracker.common.clock import utc_now
from job_tracker.domain.access import LONGEST_MEMBER, MOST_MEMBERS, Project, Token
from job_tracker.domain.caller import Role
from job_tracker.domain.telemetry import MAX_ARTIFACTS
from tests.support.access import Entry, Sent, bearer, failure
from tests.support.api_service import Serve, Service
from training_service._generated import access_service_pb2 as apb
from training_service._generated import training_reporter_pb2 as reporter_pb
from training_service._generated import training_service_pb2 as pb
from training_service._generated.access_service_pb2_grpc import AccessServiceStub
from training_service._generated.training_reporter_pb2_grpc import TrainingReporterStub
from training_service.client import AsyncTrainingClient, ResourceExhausted, TrainingClient

EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
SLOW = 0.001
READ_BY_MANY_CLIENTS = 4 << 20


async def refusal(call: Any) -> tuple[str, float]:
    """The message of a refused call, and the seconds after which the call may be repeated."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is EXHAUSTED
    message = caught.value.details() or ""
    [details] = [v for k, v in caught.value.trailing_metadata() or () if k == "grpc-status-details-bin"]
    assert isinstance(details, bytes)
    status, info = Status.FromString(details), RetryInfo()
    assert (status.code, status.message) == (EXHAUSTED.value[0], message)
    assert status.details[0].Unpack(info)
    return message, info.retry_delay.ToMilliseconds() / 1000


def refused(service: Service, limit: str) -> float | None:
    return service.metrics.registry.get_sample_value("training_service_calls_refused_total", {"limit": limit})


async def test_a_call_beyond_the_rate_is_refused_and_says_when_to_come_again(serve: Serve) -> None:
    service = await serve(tracked=False, limits={"submit_rate": SLOW, "submit_burst": 2})
    assert [await service.train(), await service.train()] == [1, 2]
    message, seconds = await refusal(service.train())
    assert message.startswith("too many submit calls: callers at ipv4:127.0.0.1 may make 0.001 a second")
    assert "(limits.submit_rate); try again in" in message
    assert seconds == pytest.approx(1 / SLOW, rel=0.1)
    assert (await service.status(2)).job_id == 2, "other kinds of calls have limits of their own"
    assert refused(service, "limits.submit_rate") == 1


async def test_a_call_beyond_the_rate_is_refused_before_it_is_parsed(serve: Serve) -> None:
    service = await serve(tracked=False, limits={"submit_rate": SLOW, "submit_burst": 1})
    for code in (grpc.StatusCode.INVALID_ARGUMENT, EXHAUSTED):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.call_raw("Train", b"\xff not a message")
        assert caught.value.code() is code


@pytest.fixture
async def closed(serve: Serve) -> Service:
    """A service that asks for tokens, and accepts only a few tries with invalid ones."""
    limits = {"failed_token_rate": SLOW, "failed_token_burst": 5, "read_rate": SLOW, "read_burst": 3}
    return await serve(tracked=False, auth={"loopback": "token"}, limits=limits)


async def whoami(service: Service, sent: Sent) -> grpc.StatusCode:
    return (await failure(AccessServiceStub(service.channel).WhoAmI(apb.WhoAmIRequest(), metadata=sent)))[0]


async def test_each_caller_has_a_rate_of_its_own_with_all_of_its_tokens(closed: Service) -> None:
    entry = Entry(closed)
    alice, again, bob = [bearer((await entry.token(name)).text) for name in ("alice", "alice", "bob")]
    found = [await whoami(closed, sent) for sent in (alice, again, alice, again, alice)]
    assert found == [grpc.StatusCode.OK] * 3 + [EXHAUSTED] * 2
    assert await whoami(closed, bob) is grpc.StatusCode.OK


async def test_invalid_tokens_are_bounded_and_do_not_lock_out_known_callers(closed: Service) -> None:
    entry = Entry(closed)
    alice, new = [bearer((await entry.token(name)).text) for name in ("alice", "new")]
    assert await whoami(closed, alice) is grpc.StatusCode.OK
    guesses = [await whoami(closed, bearer(tokens.new_token().text)) for _ in range(8)]
    assert guesses == [grpc.StatusCode.UNAUTHENTICATED] * 5 + [EXHAUSTED] * 3
    assert await whoami(closed, new) is EXHAUSTED, "it looks like one more guess"
    assert await whoami(closed, alice) is grpc.StatusCode.OK
    await entry.project("vision")  # after a change, remembered tokens are checked again
    assert await whoami(closed, alice) is grpc.StatusCode.OK
    assert await whoami(closed, entry.operator) is grpc.StatusCode.OK
    assert refused(closed, "limits.failed_token_rate") == 4


async def test_floods_do_not_fill_the_log(
    serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("training_service.api.interceptors._REFUSALS_LOGGED", SLOW)
    service = await serve(tracked=False, limits={"submit_rate": SLOW, "submit_burst": 1})
    await asyncio.gather(*(service.train() for _ in range(50)), return_exceptions=True)
    lines = [each.message for each in caplog.records if each.name == "training_service.access"]
    assert len(lines) == 6
    assert all(" by operator" in line for line in lines)
    assert refused(service, "limits.submit_rate") == 49


async def test_our_clients_wait_and_repeat_the_call(serve: Serve) -> None:
    limits = {"submit_rate": 4, "submit_burst": 1, "read_rate": 4, "read_burst": 1}
    service = await serve(tracked=False, limits=limits)
    async with AsyncTrainingClient(service.address) as client:
        ids = await asyncio.gather(*(client.submit("program", "1", "v1") for _ in range(3)))
        assert sorted(ids) == [1, 2, 3], "no call has queued two jobs"
    with TrainingClient(service.address) as plain:
        found = await asyncio.gather(*(asyncio.to_thread(plain.status, job_id) for job_id in ids))
        assert [status.job_id for status in found] == ids
        [me, again] = await asyncio.gather(*(asyncio.to_thread(plain.access.whoami) for _ in range(2)))
        assert me == again
    assert refused(service, "limits.submit_rate")
    assert refused(service, "limits.read_rate")


async def test_our_clients_do_not_wait_longer_than_their_calls_may_take(serve: Serve) -> None:
    service = await serve(tracked=False, limits={"read_rate": SLOW, "read_burst": 1})
    await service.train()
    async with AsyncTrainingClient(service.address, timeout=60) as client:
        await client.status(1)
        with pytest.raises(ResourceExhausted, match=r"limits\.read_rate") as caught:
            await client.status(1)
    assert caught.value.retry_after == pytest.approx(1 / SLOW, rel=0.1)


async def test_a_full_queue_says_when_to_come_again(serve: Serve) -> None:
    service = await serve(tracked=False, scheduling={"capacity": 1, "max_queued": 1})
    await service.train()
    message, seconds = await refusal(service.train())
    assert message.startswith("1 job is queued, which is the limit (scheduling.max_queued)")
    assert seconds == 60
    assert refused(service, "scheduling.max_queued") == 1


async def test_open_streams_are_bounded_by_caller(serve: Serve) -> None:
    service = await serve(tracked=False, limits={"open_streams_of_caller": 2})
    await service.train()
    watches = []
    for _ in range(2):
        watch: Any = service.stub.WatchTraining(pb.WatchTrainingRequest(job_id=1))
        await watch.read()
        watches.append(watch)
    third: Any = service.stub.WatchTraining(pb.WatchTrainingRequest(job_id=1))
    message, seconds = await refusal(third.read())
    assert message.startswith("2 streams are open by ipv4:127.0.0.1 (watches, logs and files)")
    assert seconds == 10
    watches.pop().cancel()
    async for status in AsyncTrainingClient(service.address).watch(1):
        assert status.job_id == 1
        break
    watches.pop().cancel()


async def test_reports_are_bounded_by_attempt(serve: Serve) -> None:
    service = await serve(limits={"report_rate": SLOW, "report_burst": 2})
    sent: list[Sent] = []
    for _ in range(2):
        job_id = await service.train({"RUN_SECONDS": "forever"})
        await service.seen(job_id, pb.running)
        sent.append(bearer(service.tokens.issue(job_id, 1)))
    stub = TrainingReporterStub(service.channel)
    for _ in range(2):
        await stub.Report(reporter_pb.ReportRequest(step=1), metadata=sent[0])
    message, _ = await refusal(stub.Report(reporter_pb.ReportRequest(step=1), metadata=sent[0]))
    assert "attempt 1 of job 1 may make" in message
    await stub.Report(reporter_pb.ReportRequest(step=1), metadata=sent[1])


async def test_the_number_of_tokens_is_bounded(serve: Serve) -> None:
    service = await serve(tracked=False, limits={"tokens_of_project": 2})
    entry = Entry(service)
    await entry.project("vision")
    made = [await entry.token(name, "vision", "viewer") for name in ("a", "b")]
    code, message = await failure(
        entry.stub.CreateToken(
            apb.CreateTokenRequest(name="c", project="vision", role=apb.viewer), metadata=entry.operator
        )
    )
    assert code is EXHAUSTED
    assert message == (
        "there are 2 tokens of project vision, which is the limit (limits.tokens_of_project); revoke some "
        "with `trainctl token revoke`"
    )
    await entry.stub.RevokeToken(apb.RevokeTokenRequest(id=made[0].token.id), metadata=entry.operator)
    await entry.token("c", "vision", "viewer")


async def test_a_page_of_projects_with_many_members_is_shorter(untracked: Service) -> None:
    widest = "\N{GRINNING FACE}" * (LONGEST_MEMBER - 4)
    members = {f"{widest}{n:04}": Role.ADMIN for n in range(MOST_MEMBERS)}
    names = [f"p{n}" for n in range(4)]
    for name in names:
        assert await untracked.store.put_project(Project(name=name, members=members))
    await untracked.access.callers.refresh()
    found: list[str] = []
    request = apb.ListProjectsRequest(page_size=1000)
    while True:
        page = await AccessServiceStub(untracked.channel).ListProjects(request)
        assert page.ByteSize() < READ_BY_MANY_CLIENTS
        found += [project.name for project in page.projects]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert found == sorted(["default", *names])


async def test_a_page_of_tokens_with_long_names_can_be_read_by_every_client(untracked: Service) -> None:
    """Names of tokens are names of callers, which may be as long in client certificates."""
    widest = "\N{GRINNING FACE}" * LONGEST_MEMBER
    given = [
        Token(
            id=f"t{n:07}",
            digest=bytes(32),
            name="x" * 64,
            project="x" * 40,
            role=Role.VIEWER,
            created_at=utc_now(),
            created_by=widest,
            expires_at=utc_now(),
            revoked_at=utc_now(),
            used_at=utc_now(),
        )
        for n in range(1001)
    ]
    long_ago = utc_now() - timedelta(days=1)
    await asyncio.gather(*(untracked.store.add_token(each, purge_before=long_ago) for each in given))
    page = await AccessServiceStub(untracked.channel).ListTokens(apb.ListTokensRequest(page_size=1000))
    assert len(page.tokens) == 1000
    assert page.ByteSize() < READ_BY_MANY_CLIENTS


async def test_the_largest_list_of_artifacts_can_be_read_by_every_client(service: Service) -> None:
    job_id = await service.train({"RUN_SECONDS": "forever"})
    await service.seen(job_id, pb.running)
    widest = "\N{GRINNING FACE}"
    artifacts = [
        reporter_pb.ReportedArtifact(
            name=f"{n:04}{widest * 124}", uri=widest * 2048, kind=widest * 128, size=2**62, sha256="a" * 64
        )
        for n in range(MAX_ARTIFACTS)
    ]
    stub, sent = TrainingReporterStub(service.channel), bearer(service.tokens.issue(job_id, 1))
    for start in range(0, MAX_ARTIFACTS, 16):
        answer = await stub.Report(
            reporter_pb.ReportRequest(artifacts=artifacts[start : start + 16]), metadata=sent
        )
        assert not answer.problems
    call = service.stub.GetTrainingArtifacts
    while len((found := await call(pb.GetTrainingArtifactsRequest(job_id=job_id))).artifacts) < MAX_ARTIFACTS:
        await asyncio.sleep(0.05)
    assert found.ByteSize() < READ_BY_MANY_CLIENTS
