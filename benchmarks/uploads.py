"""Uploads of programs: 200 MB of mixed files, compared with a bare stream of the same pieces.

The baseline is a grpc.aio server that writes the content of each file to disk, hashes it on the way, and
syncs the files in threads. It has no other checks. The service and the baseline get the same messages from
the same client, in turn, in the same run. Each round has new files, so that the service lacks all of them.
The time of "with reading" begins before the client reads and hashes the folder. Then the same tree is
uploaded again: this sends only the tree's name.
"""

import os
import random
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import grpc

from benchmarks.support import Row, Server, interleaved, ratio, run_alone, service, serving, workspace
from training_service._generated.program_service_pb2 import MissingContent, TreeStatus
from training_service._generated.program_service_pb2_grpc import ProgramServiceStub
from training_service.client import TrainingClient
from training_service.client.run.sending import Sending
from training_service.client.run.working_tree import WorkingTree, read_folder

_SIZES = {"code": (2000, 8 << 10), "data": (300, 200 << 10), "model": (3, 43 << 20)}
"""The number and size of the files of each kind: 200 MB in all."""


def measure(quick: bool) -> list[Row]:
    rounds = 3 if quick else 9
    with workspace() as folder:
        (folder / "service").mkdir()
        (folder / "peer").mkdir()
        peer_argv = [sys.executable, "-m", "benchmarks.bare_uploads", str(folder / "peer")]
        with (
            service(folder / "service", programs__max_stored_bytes=str(1 << 40)) as ours,
            serving(peer_argv) as peer,
        ):
            trees: list[WorkingTree] = []
            reading: list[float] = []

            def fresh() -> WorkingTree:
                shutil.rmtree(folder / "tree", ignore_errors=True)
                write_files(folder / "tree", seed=len(trees))
                begin = time.perf_counter()
                trees.append(read_folder(folder / "tree"))
                reading.append(time.perf_counter() - begin)
                return trees[-1]

            with TrainingClient(ours.address) as client:
                upload, bare = interleaved(
                    rounds,
                    lambda: _timed(lambda files: client._programs.upload(files, None, ()), fresh()),
                    lambda: _timed(lambda files: _send(peer, files), fresh()),
                )
                again = statistics.median(
                    _timed(lambda files: client._programs.upload(files, None, ()), _last_of(trees, client))
                    for _ in range(rounds)
                )
    size = trees[0].size / 1e6
    read = statistics.median(reading)
    speed = ratio(bare, upload)
    whole = ratio([each + read for each in bare], [each + read for each in upload])
    return [
        Row(
            f"uploads: {size:.0f} MB in {len(trees[0].files)} files, against a bare stream",
            f"{size / statistics.median(upload):.0f} MB/s",
            f"{size / statistics.median(bare):.0f} MB/s",
            f"{speed:.2f}",
            target="≥ 0.5",
            met=speed >= 0.5,
        ),
        Row("… with reading of the folder", f"{read:.2f} s for reading", ratio=f"{whole:.2f}"),
        Row("… the same tree again", f"{again * 1000:.0f} ms"),
    ]


def _timed(send: Callable[[WorkingTree], None], files: WorkingTree) -> float:
    begin = time.perf_counter()
    send(files)
    return time.perf_counter() - begin


def _last_of(trees: list[WorkingTree], client: TrainingClient) -> WorkingTree:
    """Upload the newest tree, so that the service has it, and return it."""
    client._programs.upload(trees[-1], None, ())
    return trees[-1]


def _send(peer: Server, files: WorkingTree) -> None:
    """Send the contents of all files to the baseline server."""
    sizes = {file.sha256: file.size for file in files.files}
    missing = [MissingContent(sha256=sha256, size=size) for sha256, size in sizes.items()]
    sending = Sending(files, None)
    sending.advances(TreeStatus(missing=missing))
    with grpc.insecure_channel(peer.address) as channel:
        ProgramServiceStub(channel).UploadFiles(sending.contents(missing), timeout=600)


def write_files(folder: Path, seed: int) -> None:
    """Write 200 MB of files into the folder. Their contents depend on the seed."""
    made = random.Random(seed)
    for kind, (count, size) in _SIZES.items():
        (folder / kind).mkdir(parents=True)
        for number in range(count):
            with (folder / kind / f"{number}.bin").open("wb") as file:
                file.write(made.randbytes(size))
    os.sync()  # so that the writes do not count in a measurement


if __name__ == "__main__":
    run_alone(measure)
