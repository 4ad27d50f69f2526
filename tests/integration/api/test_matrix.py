"""Every call of the proto files, as every role, in the caller's project and in another, on both stores."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from job_tracker.domain.caller import Role
from tests.support.access import LOST_BY_THE_CLIENT, Entry, Sent, failure
from tests.support.api_service import Serve, Service, metadata
from tests.support.patience import PATIENCE
from tests.support.trees import manifest_of
from training_service._generated import access_service_pb2 as apb
from training_service._generated import access_service_pb2_grpc as apb_grpc
from training_service._generated import catalog_service_pb2 as cpb
from training_service._generated import catalog_service_pb2_grpc as cpb_grpc
from training_service._generated import program_service_pb2 as ppb
from training_service._generated import program_service_pb2_grpc as ppb_grpc
from training_service._generated import training_reporter_pb2 as rpb
from training_service._generated import training_reporter_pb2_grpc as rpb_grpc
from training_service._generated import training_service_pb2 as pb
from training_service._generated import training_service_pb2_grpc as pb_grpc

TREE, MANIFEST = manifest_of({"train.py": b"print()"})
EVERYONE, NO_ROLE = None, 9
Least = int | None

# The least role for each call: about a job of another caller, a project, or neither. The roles are written
# here once more, so that a change of the table of rights must change a test.
LEAST: dict[str, Least] = {
    "Train": Role.SUBMITTER,
    "GetTrainingStatus": Role.VIEWER,
    "ListTrainingJobs": Role.VIEWER,
    "ExplainTraining": Role.VIEWER,
    "GetQueue": Role.VIEWER,
    "GetQueueSnapshot": Role.VIEWER,
    "CancelTraining": Role.ADMIN,
    "AnnotateTraining": Role.ADMIN,
    "DeleteTraining": Role.ADMIN,
    "WatchTraining": Role.VIEWER,
    "GetTrainingLogs": Role.VIEWER,
    "GetTrainingMetrics": Role.VIEWER,
    "GetTrainingArtifacts": Role.VIEWER,
    "FetchTrainingArtifact": Role.VIEWER,
    "GetTrainingChanges": Role.VIEWER,
    "Report": NO_ROLE,  # only report tokens
    "FetchProgram": NO_ROLE,  # only report tokens
    "WhoAmI": EVERYONE,
    "ListProjects": EVERYONE,
    "CreateToken": Role.ADMIN,
    "ListTokens": Role.ADMIN,
    "RevokeToken": Role.ADMIN,
    "SetMember": Role.ADMIN,
    "RemoveMember": Role.ADMIN,
    "SetProject": Role.OPERATOR,
    "DeleteProject": Role.OPERATOR,
    "FindTree": Role.SUBMITTER,
    "PutManifest": Role.SUBMITTER,
    "UploadFiles": Role.SUBMITTER,
    "ListAlgorithms": Role.VIEWER,
    "ListDatasets": Role.VIEWER,
    "SetAlgorithm": Role.ADMIN,
    "RemoveAlgorithm": Role.ADMIN,
    "SetDataset": Role.ADMIN,
    "RemoveDataset": Role.ADMIN,
    "ListQueues": Role.VIEWER,
    "SetQueue": Role.OPERATOR,
    "RemoveQueue": Role.OPERATOR,
    "ListAuditEvents": Role.ADMIN,
    "ListReportKeys": Role.OPERATOR,
    "RotateReportKey": Role.OPERATOR,
    "RemoveReportKey": Role.OPERATOR,
}
HIDDEN = {  # these answer that an object does not exist if the caller may not see it
    *("GetTrainingStatus", "CancelTraining", "WatchTraining", "GetTrainingLogs", "GetTrainingMetrics"),
    *("GetTrainingArtifacts", "FetchTrainingArtifact", "RevokeToken", "AnnotateTraining", "DeleteTraining"),
    *("GetTrainingChanges", "ExplainTraining"),
}
MODULES = ((pb, pb_grpc), (rpb, rpb_grpc), (apb, apb_grpc), (ppb, ppb_grpc), (cpb, cpb_grpc))
STUBS = {
    method.name: (getattr(grpc_module, f"{service.name}Stub"), getattr(module, method.input_type.name))
    for module, grpc_module in MODULES
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}

UPLOADS = {
    method.name
    for service in ppb.DESCRIPTOR.services_by_name.values()
    for method in service.methods
    if method.client_streaming
}
OF_PROGRAMS = ("FindTree", "PutManifest", "UploadFiles")  # they are about the project of x-project


def test_the_matrix_has_every_call_of_the_proto_files() -> None:
    assert STUBS.keys() == LEAST.keys()


class Matrix:
    """A service with the projects `vision` and `speech`, each with a job and a token of the operator's."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.entry = Entry(service)
        self.jobs: dict[str, int] = {}

    async def fill(self) -> None:
        for project in ("vision", "speech"):
            await self.entry.project(project, temporary="viewer")
            sent = [*self.entry.operator, ("x-project", project)]
            made = await self.service.stub.Train(pb.TrainRequest(metadata=metadata()), metadata=sent)
            self.jobs[project] = made.job_id

    async def fields(self, rpc: str, project: str, *, exists: bool = True) -> dict[str, Any]:
        """The fields of a request about a project."""
        job_id = self.jobs[project] if exists else 999
        name = project if exists else f"{project}-2"
        match rpc:
            case "Train":
                return {"metadata": metadata()}
            case "FindTree" | "UploadFiles":
                return {"tree": TREE}
            case "PutManifest":
                return {"tree": TREE, "content": MANIFEST}
            case "SetAlgorithm":
                return {"project": name, "name": "own", "definition": "{}"}
            case "SetDataset":
                uri = f"{self.service.settings.storage.root}/versionedDatasets/own/{{version}}"
                return {"project": name, "name": "own", "definition": json.dumps({"uri": uri})}
            case "RemoveAlgorithm" | "RemoveDataset":
                return {"project": name, "name": "own"}
            case "SetQueue":
                return {"name": f"of-{name}", "definition": "{}"}
            case "RemoveQueue":
                return {"name": f"of-{name}"}
            case "GetQueue" | "GetQueueSnapshot" | "ListTrainingJobs" | "ListTokens" | "ListAuditEvents":
                return {"project": name}
            case "ListAlgorithms" | "ListDatasets" | "ListQueues":
                return {"project": name}
            case "FetchTrainingArtifact":
                return {"job_id": job_id, "name": "model.pt"}
            case "CreateToken":
                return {"name": "ci", "project": name, "role": apb.viewer}
            case "RevokeToken":
                return {
                    "id": (await self.entry.token("ci", project, "viewer")).token.id if exists else "a" * 8
                }
            case "SetMember":
                return {"project": name, "member": "temporary", "role": apb.viewer}
            case "RemoveMember":
                if exists:
                    await self.entry.member(name, "temporary", "viewer")
                return {"project": name, "member": "temporary"}
            case "SetProject" | "DeleteProject":
                return {"name": name}
            case "RemoveReportKey":
                return {"id": 1}
            case "Report" | "FetchProgram" | "WhoAmI" | "ListProjects" | "ListReportKeys" | "RotateReportKey":
                return {}
            case _:
                return {"job_id": job_id}

    async def answer(
        self, rpc: str, project: str, sent: Sent, *, exists: bool = True
    ) -> tuple[grpc.StatusCode, str]:
        """Return the answer to the caller's request about the project, or about one that does not exist."""
        stub, request = STUBS[rpc]
        fields = await self.fields(rpc, project, exists=exists)
        name = project if exists else f"{project}-2"
        about = [*sent, ("x-project", name)] if rpc in ("Train", *OF_PROGRAMS) else sent
        call: Callable[..., Any] = getattr(stub(self.service.channel), rpc)
        message = [request(**fields)] if rpc in UPLOADS else request(**fields)
        answer = await failure(call(message, metadata=about, timeout=PATIENCE))
        while rpc in UPLOADS and answer[1] == LOST_BY_THE_CLIENT:
            answer = await failure(call(message, metadata=about, timeout=PATIENCE))
        return answer

    async def verdict(self, rpc: str, project: str, sent: Sent) -> str:
        code, details = await self.answer(rpc, project, sent)
        match code:
            case grpc.StatusCode.UNAUTHENTICATED:
                return "unknown caller"
            case grpc.StatusCode.PERMISSION_DENIED:
                return "denied"
            case grpc.StatusCode.NOT_FOUND if details.endswith("doesn't exist") and "model" not in details:
                return "hidden"
            case grpc.StatusCode.OK | grpc.StatusCode.FAILED_PRECONDITION | grpc.StatusCode.NOT_FOUND:
                return "allowed"
        raise AssertionError(f"{rpc}: {code}: {details}")


Make = Callable[[], Awaitable[Matrix]]


@pytest.fixture
async def matrix(serve: Serve, opener: Any) -> Matrix:
    store = [] if opener is None else [opener]
    made = Matrix(await serve(*store, tracked=False, auth={"loopback": "token"}))
    await made.fill()
    return made


def expected(rpc: str, role: Role | None) -> str:
    """The verdict for a caller with this role in the project of the request."""
    least = LEAST[rpc]
    if least == NO_ROLE:
        return "unknown caller"
    if least is EVERYONE or (role is not None and role >= least):
        return "allowed"
    if rpc in HIDDEN and (role is None or rpc == "RevokeToken"):
        return "hidden"
    return "denied"


@pytest.mark.parametrize("role", [None, *Role])
async def test_every_call_as_every_role(matrix: Matrix, role: Role | None) -> None:
    sent = await matrix.entry.caller(role, "vision")
    own = {rpc: await matrix.verdict(rpc, "vision", sent) for rpc in STUBS}
    assert own == {rpc: expected(rpc, role) for rpc in STUBS}
    elsewhere = role if role is Role.OPERATOR else None
    others = {rpc: await matrix.verdict(rpc, "speech", sent) for rpc in STUBS}
    assert others == {rpc: expected(rpc, elsewhere) for rpc in STUBS}


async def test_no_call_tells_a_stranger_whether_a_project_a_job_or_a_token_exists(matrix: Matrix) -> None:
    sent = await matrix.entry.caller(Role.ADMIN, "vision")
    for rpc in STUBS:
        (code, details), (same_code, same) = [
            await matrix.answer(rpc, "speech", sent, exists=exists) for exists in (True, False)
        ]
        details = details.replace(f"Job {matrix.jobs['speech']}", "Job 999").replace("speech", "speech-2")
        if rpc == "RevokeToken":  # the messages have the ids, which differ
            details, same = details[-14:], same[-14:]
        assert (code, details) == (same_code, same), rpc


async def test_every_call_needs_a_caller(matrix: Matrix) -> None:
    verdicts = {rpc: await matrix.verdict(rpc, "vision", []) for rpc in STUBS}
    assert verdicts == dict.fromkeys(STUBS, "unknown caller")


async def test_a_submitter_cancels_its_own_job_only(matrix: Matrix) -> None:
    sent = await matrix.entry.caller(Role.SUBMITTER, "vision")
    made = await matrix.service.stub.Train(pb.TrainRequest(metadata=metadata()), metadata=sent)
    cancelled = await matrix.service.stub.CancelTraining(
        pb.CancelTrainingRequest(job_id=made.job_id), metadata=sent
    )
    assert (cancelled.status, cancelled.submitted_by) == (pb.cancelled, "vision/ci")
    assert await matrix.verdict("CancelTraining", "vision", sent) == "denied"
