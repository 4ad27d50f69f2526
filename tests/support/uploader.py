"""A client of the uploads of a service."""

from collections.abc import Iterable, Mapping
from typing import Any

from tests.support.api_service import Service
from tests.support.trees import FILES, manifest_of, sha256_of
from training_service._generated import program_service_pb2 as pb
from training_service._generated import training_service_pb2 as tpb
from training_service._generated.program_service_pb2_grpc import ProgramServiceStub

TREE, MANIFEST = manifest_of(FILES)
Sent = list[tuple[str, str]]


class Uploader:
    """A client of the uploads of a service."""

    def __init__(self, service: Service, sent: Sent | None = None) -> None:
        self.service = service
        self.stub: Any = ProgramServiceStub(service.channel)
        self.sent = sent or []

    def find(self, tree: str = TREE) -> Any:
        return self.stub.FindTree(pb.FindTreeRequest(tree=tree), metadata=self.sent)

    def put(self, text: bytes = MANIFEST, tree: str = TREE, piece: int = 100) -> Any:
        parts = (text[begin : begin + piece] for begin in range(0, len(text), piece))
        requests = [
            pb.PutManifestRequest(tree=tree if number == 0 else "", content=part)
            for number, part in enumerate(parts)
        ]
        return self.stub.PutManifest(requests, metadata=self.sent)

    def upload(self, contents: Iterable[bytes], tree: str = TREE) -> Any:
        return self.stub.UploadFiles(messages(contents, tree), metadata=self.sent)

    async def whole(self, files: Mapping[str, bytes] = FILES) -> str:
        tree, text = manifest_of(files)
        await self.put(text, tree)
        assert not (await self.upload(files.values(), tree)).missing
        return tree

    def run(self, tree: str = TREE, **changes: Any) -> Any:
        fields = {"command": ["python", "train.py"], **changes}
        of_metadata = tpb.TrainingJobMetadata(parameters=fields.pop("parameters", None))
        request = tpb.TrainRequest(metadata=of_metadata, program=tpb.Program(tree=tree, **fields))
        return self.service.stub.Train(request, metadata=self.sent)


def messages(contents: Iterable[bytes], tree: str = TREE) -> list[pb.UploadFilesRequest]:
    first = pb.UploadFilesRequest(tree=tree)
    pieces = [pb.Piece(sha256=sha256_of(content), content=content) for content in contents]
    return [first, *(pb.UploadFilesRequest(pieces=[piece]) for piece in pieces)]
