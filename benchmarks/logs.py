"""Logs: the memory of the service with followers on a log of 1 GB, and what a rank that prints a lot pays.

The rank prints 1 GB as fast as it can, in lines of 100 bytes, while two followers read: one as fast as it
can, and one that reads for a while and then stops reading without leaving. Then the job ends, its log goes
into storage, and is read again from there. The memory is the most that the service had resident in all
that time, over what it had before.

The peer of the printing is the same program with a file as its output.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.support import Row, request, run_alone, service, workspace
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub

_LINE = 100
_PROGRAM = (
    "import os\n"
    f"block = b'x' * {_LINE - 1} + b'\\n'\n"
    "block *= 650\n"
    "for _ in range(int(os.environ['SIZE']) // len(block)):\n"
    "    view = memoryview(block)\n"
    "    while view:\n"
    "        view = view[os.write(1, view):]\n"
)
_TARGET_MB = 20.0
_READ_BY_THE_SLOW = 5_000_000
_STORAGE_SECONDS = 120.0


class _Peak:
    """The most memory that a process had resident, over what it had at first, in bytes."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._before = self.most = self._process.memory_info().rss
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        while not self._done.wait(0.02):
            self.most = max(self.most, self._process.memory_info().rss)

    def growth(self) -> int:
        """What it was until now; it is not measured any further."""
        self._done.set()
        self._thread.join()
        return self.most - self._before


def measure(quick: bool) -> list[Row]:
    size = 200_000_000 if quick else 1_000_000_000
    command = (sys.executable, "-c", _PROGRAM)
    with (
        workspace() as folder,
        service(folder, command=command, logs__max_bytes_per_rank=str(4 * size)) as server,
        server.stub() as stub,
    ):
        _read_whole(stub, stub.Train(request(SIZE="1000000")).job_id)  # so that all is loaded once
        directly = _printed_into_a_file(command, size, folder)
        peak = _Peak(server.pid)
        started = time.monotonic()
        job_id = stub.Train(request(SIZE=str(size))).job_id
        with _slow_follower(stub, job_id):
            read = _read_whole(stub, job_id)
            followed = time.monotonic() - started
        _ended(stub, job_id)
        _in_storage(folder, job_id)
        started = time.monotonic()
        again = _read_whole(stub, job_id)
        from_storage = time.monotonic() - started
        growth = peak.growth() / 1e6
    expected = size // (_LINE * 650) * _LINE * 650
    if {read, again} != {expected}:
        raise RuntimeError(f"{expected} bytes were printed; {read} were followed, {again} read again")
    return [
        Row(
            f"logs: memory of the service, followers on {size / 1e9:g} GB",
            f"+ {growth:.1f} MB",
            target=f"< {_TARGET_MB:.0f} MB",
            met=growth < _TARGET_MB,
        ),
        Row(
            "logs: printed and followed, against printing into a file",
            f"{size / 1e6 / followed:.0f} MB/s",
            f"{size / 1e6 / directly:.0f} MB/s",
            f"{directly / followed:.2f}",
        ),
        Row("logs: read from storage", f"{size / 1e6 / from_storage:.0f} MB/s"),
    ]


def _read_whole(stub: TrainingServiceStub, job_id: int) -> int:
    """Follow the log to its end; how many bytes there were."""
    wanted = pb.GetTrainingLogsRequest(job_id=job_id, follow=True)
    return sum(len(chunk.text) for chunk in stub.GetTrainingLogs(wanted))


@contextmanager
def _slow_follower(stub: TrainingServiceStub, job_id: int) -> Iterator[None]:
    """One who has stopped reading, but not left."""
    call = stub.GetTrainingLogs(pb.GetTrainingLogsRequest(job_id=job_id, follow=True))
    read = 0
    while read < _READ_BY_THE_SLOW:
        read += len(next(call).text)
    try:
        yield
    finally:
        call.cancel()


def _printed_into_a_file(command: tuple[str, ...], size: int, folder: Path) -> float:
    """Seconds that the program takes by itself."""
    started = time.monotonic()
    with (folder / "printed").open("wb") as file:
        subprocess.run(command, env={"SIZE": str(size)}, stdout=file, check=True)
    (folder / "printed").unlink()
    return time.monotonic() - started


def _ended(stub: TrainingServiceStub, job_id: int) -> None:
    for status in stub.WatchTraining(pb.WatchTrainingRequest(job_id=job_id)):
        last = status
    if last.status != pb.succeed:
        raise RuntimeError(f"job {job_id} did not succeed: {last.message}")


def _in_storage(folder: Path, job_id: int) -> None:
    """Wait until the log is in storage, and nowhere else."""
    deadline = time.monotonic() + _STORAGE_SECONDS
    kept = folder / "storage" / "logs" / str(job_id) / "1" / "0.log.gz"
    while not kept.exists() or any((folder / "groups" / "ended").iterdir()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{kept} is not there after {_STORAGE_SECONDS:g} s")
        time.sleep(0.05)


if __name__ == "__main__":
    run_alone(measure)
