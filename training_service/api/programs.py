"""The servicer of training.ProgramService."""

# The interceptor gives handlers a Call in place of gRPC's context.
# mypy: disable-error-code="override"

from collections.abc import AsyncIterator
from contextlib import aclosing

from job_tracker.trees.operations import Piece, Pieces, Programs
from job_tracker.trees.store import TreeStatus
from training_service._generated import program_service_pb2 as pb
from training_service._generated.program_service_pb2_grpc import ProgramServiceServicer
from training_service.api.caller import Call


class ProgramServicer(ProgramServiceServicer):
    """Converts messages and calls the domain. The interceptor handles errors."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs

    async def FindTree(self, request: pb.FindTreeRequest, call: Call) -> pb.TreeStatus:
        return _status(await self._programs.find_tree(call.caller, request.tree))

    async def PutManifest(self, requests: AsyncIterator[pb.PutManifestRequest], call: Call) -> pb.TreeStatus:
        parts = ((request.tree, request.content) async for request in requests)
        async with aclosing(parts):
            return _status(await self._programs.put_manifest(call.caller, parts))

    async def UploadFiles(self, requests: AsyncIterator[pb.UploadFilesRequest], call: Call) -> pb.TreeStatus:
        messages = (_pieces(request) async for request in requests)
        async with aclosing(messages):
            return _status(await self._programs.upload_files(call.caller, messages))


def _pieces(request: pb.UploadFilesRequest) -> Pieces:
    return Pieces(
        request.tree, tuple(Piece(each.sha256, each.offset, each.content) for each in request.pieces)
    )


def _status(status: TreeStatus) -> pb.TreeStatus:
    return pb.TreeStatus(
        tree=status.tree,
        is_known=status.is_known,
        missing=[
            pb.MissingContent(sha256=each.sha256, size=each.size, received=each.received)
            for each in status.missing
        ],
    )
