"""Uploads of programs, for plain programs, scripts and notebooks.

Generated from programs_aio.py by scripts/generate-client: change it there.
"""

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc

from training_service._generated.program_service_pb2 import FindTreeRequest, TreeStatus
from training_service._generated.program_service_pb2_grpc import ProgramServiceStub
from training_service._generated.training_service_pb2 import ProgramChanges
from training_service.client.errors import InvalidRequest, ResourceExhausted, Unavailable
from training_service.client.requests import Metadata
from training_service.client.run.repository import CHANGES, Revision
from training_service.client.run.sending import OnProgress, Sending
from training_service.client.run.working_tree import WorkingTree, read_folder
from training_service.client.stream_retry import StreamRetry
from training_service.client.translation import translated_errors

_UPLOAD_SECONDS = 600.0


class Programs:
    """Uploads the files of programs."""

    def __init__(
        self,
        channel: grpc.Channel,
        address: str,
        metadata: Callable[[Metadata], Metadata],
        timeout: float,
    ) -> None:
        """`metadata` returns the given metadata of a call with the current token added."""
        self._stub = ProgramServiceStub(channel)
        self._address = address
        self._metadata = metadata
        self._timeout = timeout

    def upload(self, files: WorkingTree, on_progress: OnProgress | None, project: Metadata) -> None:
        """Upload the tree: send the manifest and the files that the service lacks.

        If the connection breaks, the upload connects again, and sends only the content that has not arrived.
        Raises Unavailable if the service does not answer the first call for about 3 s, or a later call for
        about 20 s, which is enough for a restart of the service. Raises InvalidRequest if a file has changed
        meanwhile.
        """
        sending, retry, is_reached = Sending(files, on_progress), StreamRetry(_UPLOAD_SECONDS), False
        while True:
            try:
                status = self._find(sending, project)
                is_reached = True
                if not status.is_known:
                    status = self._put(sending, project)
                if sending.advances(status):
                    retry = StreamRetry(_UPLOAD_SECONDS)
                while status.missing:
                    status = self._send(sending, status, project)
                    sending.check_advance(status)
                    retry = StreamRetry(_UPLOAD_SECONDS)
                return
            except InvalidRequest:
                sending.check_unchanged()
                raise
            except (Unavailable, ResourceExhausted) as error:
                if isinstance(error, Unavailable) and not is_reached:
                    raise  # the channel has retried this call already
                pause = retry.pause_after(error)
            time.sleep(pause)

    def upload_changes(self, revision: Revision, project: Metadata) -> ProgramChanges:
        """Upload the changes of a revision as a separate tree.

        Returns the part of a request that names this tree and the numbers of changed lines.
        """
        with TemporaryDirectory() as folder:
            (Path(folder) / CHANGES).write_bytes(revision.changes)
            tree = read_folder(folder)
            self.upload(tree, None, project)
        added, removed = revision.lines
        return ProgramChanges(tree=tree.name, added=added, removed=removed)

    def _find(self, sending: Sending, project: Metadata) -> TreeStatus:
        request = FindTreeRequest(tree=sending.files.name)
        with translated_errors(self._address):
            return self._stub.FindTree(request, timeout=self._timeout, metadata=self._metadata(project))

    def _put(self, sending: Sending, project: Metadata) -> TreeStatus:
        with translated_errors(self._address):
            return self._stub.PutManifest(
                sending.manifest(), timeout=_UPLOAD_SECONDS, metadata=self._metadata(project)
            )

    def _send(self, sending: Sending, status: TreeStatus, project: Metadata) -> TreeStatus:
        with translated_errors(self._address):
            return self._stub.UploadFiles(
                sending.contents(status.missing), timeout=_UPLOAD_SECONDS, metadata=self._metadata(project)
            )
