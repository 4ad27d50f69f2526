"""Logs: the memory of the service with followers on a log of 1 GB, and the cost to a rank that prints it.

The rank prints 1 GB as fast as it can, in lines of 100 bytes. Two followers read the log. One reads as fast
as it can. The other stops reading after a while, but stays connected. Then the job ends, and its log is moved
to storage and read again from there. The result is the peak of the service's resident set during all this,
minus its value at the beginning.

For comparison, the same program prints into a file.
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
    """Measures how much a process's resident set grows. `most` is its largest size so far, in bytes."""

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
        """Stop measuring. Return the peak minus the value at the start, in bytes."""
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
        _read_whole(stub, stub.Train(request(SIZE="1000000")).job_id)  # warms up: the first job loads code
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
    """Follow the log to its end, and return the number of its characters."""
    wanted = pb.GetTrainingLogsRequest(job_id=job_id, follow=True)
    return sum(len(chunk.text) for chunk in stub.GetTrainingLogs(wanted))


@contextmanager
def _slow_follower(stub: TrainingServiceStub, job_id: int) -> Iterator[None]:
    """During the block, keep a follower that has stopped reading but stays connected."""
    call = stub.GetTrainingLogs(pb.GetTrainingLogsRequest(job_id=job_id, follow=True))
    read = 0
    while read < _READ_BY_THE_SLOW:
        read += len(next(call).text)
    try:
        yield
    finally:
        call.cancel()


def _printed_into_a_file(command: tuple[str, ...], size: int, folder: Path) -> float:
    """Return the seconds that the program takes without the service, with its output in a file."""
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
    """Wait until the log is in storage, and only there."""
    deadline = time.monotonic() + _STORAGE_SECONDS
    kept = folder / "storage" / "logs" / str(job_id) / "1" / "0.log.gz"
    while not kept.exists() or any((folder / "groups" / "ended").iterdir()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"the log is not in {kept} alone after {_STORAGE_SECONDS:g} s")
        time.sleep(0.05)


if __name__ == "__main__":
    run_alone(measure)
