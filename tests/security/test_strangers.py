"""A caller without a right gets a clear error, and does not learn whether a job exists."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from job_tracker.access import tokens
from tests.support.access import Entry, Sent, bearer, failure
from tests.support.api_service import Serve, Service, metadata
from tests.support.patience import PATIENCE
from training_service._generated import access_service_pb2 as apb
from training_service._generated import training_service_pb2 as pb

CODE = grpc.StatusCode
ABOUT_A_JOB = {
    "GetTrainingStatus": pb.GetTrainingStatusRequest,
    "CancelTraining": pb.CancelTrainingRequest,
    "WatchTraining": pb.WatchTrainingRequest,
    "GetTrainingLogs": pb.GetTrainingLogsRequest,
    "GetTrainingMetrics": pb.GetTrainingMetricsRequest,
    "GetTrainingArtifacts": pb.GetTrainingArtifactsRequest,
    "FetchTrainingArtifact": pb.FetchTrainingArtifactRequest,
}


class World:
    """A service that asks for tokens, with a job in `vision`, and callers that may not know of it."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.entry = Entry(service)
        self.job = 0
        self.callers: dict[str, Sent] = {}

    async def fill(self) -> None:
        """Make the projects, the job and the callers."""
        for project in ("vision", "speech", "gone"):
            await self.entry.project(project)
        self.job = await self.trained()
        revoked = await self.entry.token("revoked", "vision", "admin")
        await self.entry.stub.RevokeToken(
            apb.RevokeTokenRequest(id=revoked.token.id), metadata=self.entry.operator
        )
        expired = await self.expiring(1)
        gone = await self.entry.token("ci", "gone", "admin")
        await self.entry.stub.DeleteProject(
            apb.DeleteProjectRequest(name="gone"), metadata=self.entry.operator
        )
        other = await self.entry.token("ci", "speech", "admin")
        without = await self.entry.token("dora")
        report = self.service.tokens.issue(self.job, 1)
        texts = {
            "no token": "",
            "malformed": "tst_x",
            "oversized": "tst_abcdefgh_" + "x" * 5000,
            "foreign": tokens.new_token().text,
            "revoked": revoked.text,
            "expired": expired,
            "of a deleted project": gone.text,
            "of another project": other.text,
            "without a role": without.text,
            "report token of the job": report,
        }
        self.callers = {name: bearer(text) if text else [] for name, text in texts.items()}
        while (await self.asked("expired", "GetTrainingStatus", 1))[0] is not CODE.UNAUTHENTICATED:
            await asyncio.sleep(0.05)

    async def trained(self) -> int:
        """Submit a job in `vision` and return its id."""
        sent = [*self.entry.operator, ("x-project", "vision")]
        return int(
            (await self.service.stub.Train(pb.TrainRequest(metadata=metadata()), metadata=sent)).job_id
        )

    async def expiring(self, seconds: int) -> str:
        """Return a token of `vision` that expires soon."""
        request = apb.CreateTokenRequest(
            name="ci", project="vision", role=apb.viewer, lifetime=Duration(seconds=seconds)
        )
        return str((await self.entry.stub.CreateToken(request, metadata=self.entry.operator)).text)

    async def asked(self, who: str, rpc: str, job_id: int) -> tuple[grpc.StatusCode, str]:
        """Return the code and the message of a call about a job. The job's id in the message is replaced."""
        request: Callable[..., Any] = ABOUT_A_JOB[rpc]
        fields = {"name": "model.pt"} if rpc == "FetchTrainingArtifact" else {}
        call = getattr(self.service.stub, rpc)
        code, details = await failure(
            call(request(job_id=job_id, **fields), metadata=self.callers[who], timeout=PATIENCE)
        )
        return code, details.replace(f"Job {job_id}", "Job N")


# The answer to each caller, which is the same whether the job exists or not.
EXPECTED = {
    "no token": (CODE.UNAUTHENTICATED, "this service needs to know who is calling"),
    "malformed": (CODE.UNAUTHENTICATED, tokens.REFUSED),
    "oversized": (CODE.UNAUTHENTICATED, tokens.REFUSED),
    "foreign": (CODE.UNAUTHENTICATED, tokens.REFUSED),
    "revoked": (CODE.UNAUTHENTICATED, "was revoked at"),
    "expired": (CODE.UNAUTHENTICATED, "expired at"),
    "of a deleted project": (CODE.UNAUTHENTICATED, "was revoked at"),
    "of another project": (CODE.NOT_FOUND, "Job N doesn't exist"),
    "without a role": (CODE.NOT_FOUND, "Job N doesn't exist"),
    "report token of the job": (CODE.UNAUTHENTICATED, tokens.REFUSED),
}


@pytest.fixture
async def world(serve: Serve) -> World:
    made = World(await serve(tracked=False, auth={"loopback": "token"}))
    await made.fill()
    return made


async def test_a_stranger_gets_one_clear_answer_whether_the_job_exists_or_not(world: World) -> None:
    assert world.callers.keys() == EXPECTED.keys()
    for who, (code, text) in EXPECTED.items():
        answers = {await world.asked(who, rpc, job) for rpc in ABOUT_A_JOB for job in (world.job, 999_999)}
        assert len(answers) == 1, (who, answers)
        [(got, details)] = answers
        assert (got, text in details) == (code, True), (who, details)


async def test_a_report_token_submits_cancels_and_lists_nothing(world: World) -> None:
    sent = world.callers["report token of the job"]
    stub = world.service.stub
    for call in (
        stub.Train(pb.TrainRequest(metadata=metadata()), metadata=sent),
        stub.CancelTraining(pb.CancelTrainingRequest(job_id=world.job), metadata=sent),
        stub.ListTrainingJobs(pb.ListTrainingJobsRequest(), metadata=sent),
        world.entry.stub.CreateToken(apb.CreateTokenRequest(name="x"), metadata=sent),
    ):
        assert await failure(call) == (CODE.UNAUTHENTICATED, tokens.REFUSED)


async def test_a_log_that_is_followed_ends_when_the_role_is_taken_away(serve: Serve) -> None:
    service = await serve(auth={"loopback": "token"})
    entry = Entry(service)
    await entry.project("vision", alice="submitter")
    alice = bearer((await entry.token("alice")).text)
    wanted = metadata({"RUN_SECONDS": "forever", "PRINT": "a line"})
    job = (await service.stub.Train(pb.TrainRequest(metadata=wanted), metadata=alice)).job_id
    followed = service.stub.GetTrainingLogs(
        pb.GetTrainingLogsRequest(job_id=job, follow=True), metadata=alice
    )
    pieces = aiter(followed)
    assert "a line" in (await anext(pieces)).text
    removal = apb.RemoveMemberRequest(project="vision", member="alice")
    await entry.stub.RemoveMember(removal, metadata=entry.operator)
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        async for _ in pieces:
            pass
    assert ended.value.code() is CODE.PERMISSION_DENIED
    assert "alice has no role there" in str(ended.value.details())
    again = service.stub.GetTrainingLogs(pb.GetTrainingLogsRequest(job_id=job), metadata=alice)
    assert await failure(again) == (CODE.NOT_FOUND, f"Job {job} doesn't exist")
    await service.stub.CancelTraining(pb.CancelTrainingRequest(job_id=job), metadata=entry.operator)
