"""Callers with client certificates, at a real server with a real store."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from job_tracker.domain.caller import Caller, Means
from job_tracker.jobs import JobView
from tests.support.api_service import Serve, Service
from tests.support.certificates import LOCAL, Authority, Issued, credentials
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub
from training_service.api.interceptors import CallInterceptor
from training_service.auth.authenticator import Proofs
from training_service.auth.certificates import identity_of
from training_service.auth.live import Live
from training_service.auth.pem_files import PemFile
from training_service.auth.tls import read_tls
from training_service.serving import Listener, Servicers, make_server

OPERATORS = ["spiffe://example.org/ci", "CN=alice"]


class Entrance:
    """A server that requires client certificates, in front of a service."""

    def __init__(self, service: Service, folder: Path) -> None:
        self.service = service
        self.authority = Authority(folder)
        files = self.authority.issue(*LOCAL).write(folder, "server")
        paths = [files.certificate, files.key, self.authority.file]
        pem = [PemFile("server.tls", path) for path in paths]
        tls = Live("server.tls", paths, lambda: read_tls(*pem))
        interceptor = CallInterceptor(
            service.metrics.observe_call, Proofs(service.access.callers, identity_of, is_open=False)
        )
        self.server = make_server(Servicers(api=service.servicer), interceptor, 1024)
        self.address = f"127.0.0.1:{Listener('server.address', '127.0.0.1:0', tls, True).bind(self.server)}"
        self._stack = AsyncExitStack()

    async def connect(self, client: Issued) -> Any:
        """A client with the certificate."""
        channel = grpc.aio.secure_channel(
            self.address, credentials(self.authority, client), [("grpc.use_local_subchannel_pool", 1)]
        )
        return TrainingServiceStub(await self._stack.enter_async_context(channel))

    async def close(self) -> None:
        await self._stack.aclose()
        await self.server.stop(None)


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
    entrance: Entrance,
) -> None:
    """gRPC checks the time only when a connection begins."""
    job = await entrance.service.train()
    stub = await entrance.connect(entrance.authority.issue(subject="alice", lasts=timedelta(seconds=4)))
    watch = stub.WatchTraining(pb.WatchTrainingRequest(job_id=job))
    assert (await anext(aiter(watch))).status == pb.queuing
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        async for _ in watch:
            pass
    assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert str(ended.value.details()).startswith("the client certificate of 'CN=alice' expired at 20")
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
    assert "has other characters than printable ASCII" in str(refused.value.details())


async def test_a_name_without_a_role_learns_of_no_job(entrance: Entrance) -> None:
    job = await entrance.service.train()
    stub = await entrance.connect(entrance.authority.issue(subject="mallory"))
    answers = set()
    for asked in (job, job + 1):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.GetTrainingStatus(pb.GetTrainingStatusRequest(job_id=asked))
        answers.add((refused.value.code(), str(refused.value.details()).replace(str(asked), "N")))
    assert answers == {(grpc.StatusCode.NOT_FOUND, "Job N doesn't exist")}
