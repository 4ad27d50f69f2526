"""The baseline server of benchmarks.uploads, which writes the uploaded files to FOLDER.

Usage: python -m benchmarks.bare_uploads FOLDER
"""

import asyncio
import hashlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from training_service._generated.program_service_pb2 import TreeStatus, UploadFilesRequest

_SERVICE = "training.ProgramService"


class Bare:
    """Writes and hashes the pieces that arrive. Meanwhile, threads sync complete files to disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def upload_files(self, requests: AsyncIterator[UploadFilesRequest], _: Any) -> TreeStatus:
        name, file, digest = "", -1, hashlib.sha256()
        loop = asyncio.get_running_loop()
        syncs: list[asyncio.Future[None]] = []

        def finish() -> None:
            if file >= 0:
                assert digest.hexdigest() == name
                syncs.append(loop.run_in_executor(None, _sync, file))

        async for message in requests:
            for piece in message.pieces:
                if piece.sha256 != name:
                    finish()
                    name, digest = piece.sha256, hashlib.sha256()
                    file = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT, 0o600)
                digest.update(piece.content)
                os.write(file, piece.content)
        finish()
        await asyncio.gather(*syncs)
        return TreeStatus()


def _sync(file: int) -> None:
    os.fsync(file)
    os.close(file)


async def _serve(folder: Path) -> None:
    server = grpc.aio.server()
    handler = grpc.stream_unary_rpc_method_handler(
        Bare(folder).upload_files, UploadFilesRequest.FromString, TreeStatus.SerializeToString
    )
    server.add_registered_method_handlers(_SERVICE, {"UploadFiles": handler})
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(_SERVICE, {"UploadFiles": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"serving at 127.0.0.1:{port}", file=sys.stderr, flush=True)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
