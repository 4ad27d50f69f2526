"""Callers with client certificates, at a real server with a real store."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
from cryptography import x509

from job_tracker.domain.audit import AUTHENTICATE, Outcome
from job_tracker.domain.caller import Caller, Means
from job_tracker.jobs import JobView
from job_tracker.store.audit import AuditFilter
from tests.support.api_service import Serve
from tests.support.entrance import Entrance
from training_service._generated import training_service_pb2 as pb
from training_service.auth import certificates

OPERATORS = ["spiffe://example.org/ci", "CN=alice"]


@pytest.fixture
async def entrance(serve: Serve, tmp_path: Path) -> AsyncIterator[Entrance]:
    made = Entrance(await serve(tracked=False, auth={"operators": OPERATORS}), tmp_path)
    await made.server.start()
    yield made
    await made.close()


@pytest.mark.parametrize(
    ("names", "subject", "name"),
    [
        (["spiffe://example.org/ci"], None, "spiffe://example.org/ci"),
        (["spiffe://example.org/ci"], "alice", "spiffe://example.org/ci"),
        (["spiffe://example.org/ci", "spiffe://example.org/root"], "alice", "CN=alice"),
        (["alice.example"], "alice", "CN=alice"),
    ],
)
async def test_the_spiffe_id_or_else_the_subject_is_the_name_of_the_caller(
    entrance: Entrance, monkeypatch: pytest.MonkeyPatch, names: list[str], subject: str | None, name: str
) -> None:
    seen: list[Caller] = []
    get = entrance.service.servicer._jobs.get

    async def spy(caller: Caller, job_id: int) -> JobView:
        seen.append(caller)
        return await get(caller, job_id)

    monkeypatch.setattr(entrance.service.servicer._jobs, "get", spy)
    job = await entrance.service.train()
    stub = await entrance.connect(entrance.authority.issue(*names, subject=subject))
    assert (await stub.GetTrainingStatus(pb.GetTrainingStatusRequest(job_id=job))).status == pb.queuing
    [caller] = seen
    assert (caller.name, caller.means, caller.address) == (name, Means.CERTIFICATE, "ipv4:127.0.0.1")


async def test_a_call_after_the_certificate_has_expired_is_refused_on_an_open_connection(
    entrance: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC checks the time only when a connection begins."""
    job = await entrance.service.train()
    issued = entrance.authority.issue(subject="alice")
    end = x509.load_pem_x509_certificate(issued.certificate).not_valid_after_utc.timestamp()
    stub = await entrance.connect(issued)
    assert (await stub.GetTrainingStatus(pb.GetTrainingStatusRequest(job_id=job))).status == pb.queuing
    # The service's clock for certificates stands still, so that the calls may take any time.
    monkeypatch.setattr(certificates, "time", SimpleNamespace(time=partial(float, end - 0.5)))
    watch = stub.WatchTraining(pb.WatchTrainingRequest(job_id=job))
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        async for _ in watch:
            pass
    assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert str(ended.value.details()).startswith("the client certificate of 'CN=alice' expired at 20")
    await entrance.service.trail.flush()
    [denial] = await entrance.service.store.list_events(AuditFilter(caller="CN=alice"), limit=2)
    assert (denial.action, denial.outcome, denial.address) == (AUTHENTICATE, Outcome.DENIED, "ipv4:127.0.0.1")
    assert denial.detail.startswith("the client certificate of 'CN=alice' expired at 20")
    monkeypatch.setattr(certificates, "time", SimpleNamespace(time=partial(float, end)))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.GetTrainingStatus(pb.GetTrainingStatusRequest(job_id=job))
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "connect again with a new one" in str(refused.value.details())


async def test_a_certificate_without_a_name_is_refused(entrance: Entrance) -> None:
    stub = await entrance.connect(entrance.authority.issue("host.example", subject=None))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.GetTrainingStatus(pb.GetTrainingStatusRequest(job_id=1))
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "give it a SPIFFE id or a subject" in str(refused.value.details())


async def test_a_spiffe_id_is_not_cut_at_a_nul(entrance: Entrance) -> None:
    stub = await entrance.connect(entrance.authority.issue(f"{OPERATORS[0]}\0.evil", subject="alice"))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.ListTrainingJobs(pb.ListTrainingJobsRequest())
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "has characters that are not printable ASCII" in str(refused.value.details())


async def test_a_name_without_a_role_learns_of_no_job(entrance: Entrance) -> None:
    job = await entrance.service.train()
    stub = await entrance.connect(entrance.authority.issue(subject="mallory"))
    answers = set()
    for asked in (job, job + 1):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.GetTrainingStatus(pb.GetTrainingStatusRequest(job_id=asked))
        answers.add((refused.value.code(), str(refused.value.details()).replace(str(asked), "N")))
    assert answers == {(grpc.StatusCode.NOT_FOUND, "Job N doesn't exist")}
