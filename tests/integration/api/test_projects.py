"""Projects over the wire: the metadata x-project, lists, roles, and clients that know nothing of projects."""

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from job_tracker.domain.caller import Caller, Role
from job_tracker.domain.rights import RIGHTS
from tests.support.access import failure
from tests.support.api_service import Serve, Service, metadata
from tests.support.callers import caller_with
from training_service._generated import training_service_pb2 as pb
from training_service.auth import authenticator
from training_service.client import AsyncTrainingClient, InvalidRequest, NotAllowed, NotFound

PROJECTS: dict[str, Any] = {"vision": {}, "speech": {}}
Become = Callable[[Caller], None]


@pytest.fixture
async def service(serve: Serve) -> Service:
    return await serve(tracked=False, projects=PROJECTS)


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch) -> Iterator[Become]:
    """A function that makes all further calls come from a caller, as authentication does."""

    def become(caller: Caller) -> None:
        monkeypatch.setattr(authenticator, "BUILT_IN", caller)
        authenticator._open_caller.cache_clear()

    yield become
    authenticator._open_caller.cache_clear()


async def train(service: Service, project: str = "") -> int:
    sent = [("x-project", project)] if project else []
    return (await service.stub.Train(pb.TrainRequest(metadata=metadata()), metadata=sent)).job_id


async def test_a_client_that_knows_nothing_of_projects_uses_the_default(service: Service) -> None:
    job_id = await train(service)
    status = await service.status(job_id)
    assert (status.project, status.submitted_by) == ("default", "operator")
    listed = await service.stub.ListTrainingJobs(pb.ListTrainingJobsRequest())
    assert [job.job_id for job in listed.jobs] == [job_id]
    assert "/default/" in status.model_uri


async def test_the_metadata_names_the_project_of_new_jobs_and_of_lists(service: Service) -> None:
    ids = [await train(service, project) for project in ("vision", "", "speech", "vision")]
    assert ids == [1, 2, 3, 4]

    async def listed(project: str = "", /, **wanted: Any) -> list[int]:
        sent = [("x-project", project)] if project else []
        page = await service.stub.ListTrainingJobs(pb.ListTrainingJobsRequest(**wanted), metadata=sent)
        return [job.job_id for job in page.jobs]

    assert await listed() == [2]
    assert await listed("vision") == [4, 1]
    assert await listed("vision", project="speech") == [3]
    assert await listed(all_projects=True) == [4, 3, 2, 1]
    assert await listed("vision", submitted_by="operator") == [4, 1]
    assert await listed(all_projects=True, submitted_by="ada") == []
    assert (await service.status(4)).project == "vision"
    assert "/vision/" in (await service.status(4)).model_uri


async def test_the_python_client_sends_its_project(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINING_PROJECT", "vision")
    async with AsyncTrainingClient(service.address) as client:
        first = await client.submit("program", "1", "v1")
    async with AsyncTrainingClient(service.address, project="speech") as client:
        await client.submit("program", "1", "v1")
        assert [job.project async for job in client.list()] == ["speech"]
        assert [job.project async for job in client.list(all_projects=True)] == ["speech", "vision"]
        assert [job.job_id async for job in client.list(all_projects=True, submitted_by="nobody")] == []
        assert (await client.status(first)).project == "vision"
    async with AsyncTrainingClient(service.address, project="no-such") as client:
        with pytest.raises(NotFound, match="no-such doesn't exist; the operator configures projects"):
            await client.submit("program", "1", "v1")
    async with AsyncTrainingClient(service.address, project="No Such") as client:
        with pytest.raises(InvalidRequest, match="x-project: 'No Such' is not the name of a project"):
            await client.submit("program", "1", "v1")
    with pytest.raises(InvalidRequest, match="project"):
        AsyncTrainingClient(service.address, project="é\n")


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ({"project": "../x"}, "project: '../x' is not the name of a project: use 1 to 40"),
        ({"project": "vision", "all_projects": True}, "project: 'vision' is not allowed with all_projects"),
    ],
)
async def test_a_list_names_what_is_wrong(service: Service, wanted: dict[str, Any], problem: str) -> None:
    call = service.stub.ListTrainingJobs(pb.ListTrainingJobsRequest(**wanted))
    assert problem in await service.refuses(call, grpc.StatusCode.INVALID_ARGUMENT)


async def test_a_project_has_its_own_limit_of_queued_jobs(serve: Serve) -> None:
    service = await serve(tracked=False, projects={"vision": {"max_queued": 2}, "speech": {}})
    for project in ("vision", "vision", "speech", "speech", "speech"):
        await train(service, project)
    problem = await service.refuses(train(service, "vision"), grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert "2 jobs of project vision are queued, which is the limit (projects.vision.max_queued)" in problem
    await service.stub.CancelTraining(pb.CancelTrainingRequest(job_id=1))
    await train(service, "vision")


async def test_a_project_must_be_configured(service: Service) -> None:
    problem = await service.refuses(train(service, "no-such"), grpc.StatusCode.NOT_FOUND)
    assert problem == "project: no-such doesn't exist; the operator configures projects"


async def test_a_list_of_an_unknown_project_is_an_error(service: Service) -> None:
    code, message = await failure(service.stub.ListTrainingJobs(pb.ListTrainingJobsRequest(project="typo")))
    assert code is grpc.StatusCode.NOT_FOUND
    assert "typo" in message


async def test_equal_keys_in_two_projects_are_two_jobs(service: Service) -> None:
    async def keyed(project: str) -> int:
        request = pb.TrainRequest(metadata=metadata(), request_key="monday")
        return (await service.stub.Train(request, metadata=[("x-project", project)])).job_id

    assert [await keyed(project) for project in ("vision", "speech", "vision")] == [1, 2, 1]


MESSAGES: dict[str, Callable[[int], Any]] = {
    "Train": lambda _: pb.TrainRequest(metadata=metadata()),
    "ListTrainingJobs": lambda _: pb.ListTrainingJobsRequest(),
    "GetQueue": lambda _: pb.GetQueueRequest(project="vision"),
    "FetchTrainingArtifact": lambda job_id: pb.FetchTrainingArtifactRequest(job_id=job_id, name="model.pt"),
}


def is_of_a_job(rpc: str) -> bool:
    return "job_id" in getattr(pb, f"{rpc}Request").DESCRIPTOR.fields_by_name


async def code_of(service: Service, rpc: str, job_id: int) -> tuple[grpc.StatusCode, str]:
    """Return the code of the call, and its message."""
    kind = getattr(pb, f"{rpc}Request")
    made = MESSAGES.get(rpc) or (lambda job_id: kind(job_id=job_id) if is_of_a_job(rpc) else kind())
    return await failure(getattr(service.stub, rpc)(made(job_id)))


@pytest.mark.parametrize("rpc", [right.rpc for right in RIGHTS.values()])
async def test_each_call_as_each_role_in_the_own_and_in_another_project(
    service: Service, become: Become, rpc: str
) -> None:
    own, other = await train(service, "vision"), await train(service, "speech")
    [right] = [right for right in RIGHTS.values() if right.rpc == rpc]
    of_a_job = is_of_a_job(rpc)
    # The job is queued, and runs no program: it has no artifact and no changes, and cannot be deleted.
    lacking = {
        "FetchTrainingArtifact": grpc.StatusCode.NOT_FOUND,
        "GetTrainingChanges": grpc.StatusCode.NOT_FOUND,
        "DeleteTraining": grpc.StatusCode.FAILED_PRECONDITION,
    }
    fine = (grpc.StatusCode.OK, lacking.get(rpc))
    for role in (None, *Role):
        become(caller_with(role, "vision", name="ada"))
        code, message = await code_of(service, rpc, own)
        gone = f"Job {own} doesn't exist"
        if role is not None and role >= (right.for_others or right.least):
            assert code in fine, (role, message)
            assert message != gone
        elif role is None and of_a_job:
            assert (code, message) == (grpc.StatusCode.NOT_FOUND, gone)
        else:
            assert code is grpc.StatusCode.PERMISSION_DENIED, (role, message)
            assert "project vision: only a caller with the role" in message
        if of_a_job and role is not Role.OPERATOR:
            there, nowhere = await code_of(service, rpc, other), await code_of(service, rpc, 999)
            assert there == (grpc.StatusCode.NOT_FOUND, f"Job {other} doesn't exist")
            assert nowhere == (grpc.StatusCode.NOT_FOUND, "Job 999 doesn't exist")


async def test_who_submitted_a_job_is_shown(service: Service, become: Become) -> None:
    become(caller_with(Role.SUBMITTER, "speech", name="ada"))
    status = await service.status(await train(service))
    assert (status.project, status.submitted_by) == ("speech", "ada")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await train(service, "vision")
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_the_client_raises_not_allowed(service: Service, become: Become) -> None:
    become(caller_with(Role.VIEWER, "vision", name="ada"))
    async with AsyncTrainingClient(service.address) as client:
        with pytest.raises(NotAllowed, match="role submitter or a higher one may submit jobs; ada is viewer"):
            await client.submit("program", "1", "v1")
