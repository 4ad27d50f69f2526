"""Memory of the service under attack by clients: before, at the peak, and a while after.

Each attack has its own service, with the fake backend, in a control group limited to 256 MB (if this user can
make one). Beyond the limit the kernel kills the service, and the row says so.

- 260,000 streams, each reset right after it is opened, on 8 connections.
- 60 calls of 15 MiB of zeros, compressed with gzip, and 8 calls that decompress to 200 MiB.
- Lists of 1,000 jobs of 60 kB, read by 8 clients at once, while another client's status calls are timed; and
  200 lists of 100 such jobs, which the clients do not read.
- 4 connections with 1,000 calls each, whose answers the client does not read: the log of an ended job, or
  the watch of a job of 60 kB. Meanwhile, a client at another address reads one such answer.
- 8 clients read the last lines of a kept log: 256 MiB without a line break, or 16 MiB of only line breaks.

Memory is the resident set in /proc; the peak is the kernel's own counter.
"""

import asyncio
import gzip
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path
from typing import Any

import grpc

from benchmarks.support import (
    Filling,
    Row,
    Server,
    fill,
    many,
    run_alone,
    service,
    stored_spec,
    workspace,
)
from job_tracker.store.sqlite import SqliteStore
from tests.support.http2 import reset_streams, unread_calls
from tests.support.logs import records
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub
from training_service.client import TrainingClient

LIMIT = 256  # MB
BACK_WITHIN = 20
_MB = 10**6
_AFTER_SECONDS = 60.0
_CLIENTS = 8
_UNREAD_SECONDS = 30.0  # longer than the service keeps an unread call while other calls wait
_STRANGER = "127.0.0.2"
_CGROUPS = Path("/sys/fs/cgroup")
_FINISHED = Filling(finished=1, holder=False)


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack on a service.

    `prepare` is called with the data folder before the service starts. `run` returns a remark for the row.
    """

    name: str
    run: Callable[[Server], str]
    prepare: Callable[[Path], None] = lambda folder: fill(folder, _FINISHED)


def measure(quick: bool) -> list[Row]:
    scale = 10 if quick else 1
    attacks = [
        Attack(f"{260_000 // scale:,} reset streams", lambda server: _reset(server, 260_000 // scale)),
        Attack(f"{60 // scale} gzipped calls of 15 MiB", lambda server: _gzipped(server, 60 // scale, 15)),
        Attack("8 gzipped calls of 200 MiB", lambda server: _gzipped(server, 8, 200)),
        Attack(
            f"lists of {1_000 // scale:,} jobs of 60 kB", _lists, lambda f: _fill_large(f, 1_000 // scale)
        ),
        Attack("200 lists that are not read", _unread_lists, lambda f: _fill_large(f, 100)),
        Attack(
            f"4 × {1_000 // scale:,} logs that are not read",
            lambda server: _unread_logs(server, 1_000 // scale),
            lambda f: _fill_log(f, records(*["x" * 100] * 10_000)),
        ),
        Attack(
            f"4 × {1_000 // scale:,} watches that are not read",
            lambda server: _unread_watches(server, 1_000 // scale),
            lambda f: _fill_large(f, 1),
        ),
        Attack("a log of 256 MiB without a line break", _logs, lambda f: _fill_log(f, bytes(256 << 20))),
        Attack("a log of 16 MiB of line breaks", _logs, lambda f: _fill_log(f, b"\n" * (16 << 20))),
    ]
    return [_measured(attack, 15.0 if quick else _AFTER_SECONDS) for attack in attacks]


def _measured(attack: Attack, seconds: float) -> Row:
    with workspace() as folder:
        attack.prepare(folder)
        with service(folder) as server, _limited(server.pid) as how:
            _status(server)
            before = _memory(server.pid, "VmRSS")
            try:
                remark = attack.run(server)
                _until_calm(server.pid, before + BACK_WITHIN, seconds)
                peak, after = _memory(server.pid, "VmHWM"), _memory(server.pid, "VmRSS")
                _status(server)  # the service still answers
            except (OSError, grpc.RpcError, LookupError) as error:
                return Row(
                    f"memory: {attack.name}", f"the service is gone ({type(error).__name__})", met=False
                )
    return Row(
        f"memory: {attack.name}{remark}",
        f"{before:.0f} → {peak:.0f} → {after:.0f} MB",
        target=f"≤ {LIMIT} MB{how}, back within {BACK_WITHIN}",
        met=peak <= LIMIT and after <= before + BACK_WITHIN,
    )


def _until_calm(pid: int, wanted: float, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and _memory(pid, "VmRSS") > wanted:
        time.sleep(0.5)


def _memory(pid: int, field: str) -> float:
    """Return a field of /proc/PID/status in MB: VmRSS is the present value, VmHWM the peak."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024 / _MB
    raise LookupError(f"process {pid} has ended")


@contextmanager
def _limited(pid: int) -> Iterator[str]:
    """Limit the memory of a process during the block. Yield a remark for the row: empty if the limit is
    enforced.
    """
    root = _CGROUPS / "memory" if (_CGROUPS / "memory").is_dir() else _CGROUPS
    name = "memory.limit_in_bytes" if root != _CGROUPS else "memory.max"
    group = root / f"bench-{os.getpid()}"
    try:
        group.mkdir()
        (group / name).write_text(str(LIMIT * _MB))
        (group / "cgroup.procs").write_text(str(pid))
    except OSError:
        with suppress(OSError):
            group.rmdir()
        yield " (not enforced)"
        return
    try:
        yield ""
    finally:
        with suppress(OSError):
            (root / "cgroup.procs").write_text(str(pid))
        group.rmdir()


# --- the attacks --------------------------------------------------------------------------------


def _reset(server: Server, streams: int) -> str:
    with ThreadPoolExecutor(_CLIENTS) as pool:
        sent = sum(pool.map(lambda _: reset_streams(server.address, streams // _CLIENTS), range(_CLIENTS)))
    return "" if sent >= streams // _CLIENTS * _CLIENTS else f" (connections closed after {sent:,})"


def _gzipped(server: Server, calls: int, mebibytes: int) -> str:
    zeros = bytes(mebibytes << 20)

    def call(_: int) -> grpc.StatusCode:
        with grpc.insecure_channel(server.address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            train: Any = channel.unary_unary("/training.TrainingService/Train")
            code: grpc.StatusCode = train.future(zeros, compression=grpc.Compression.Gzip, timeout=60).code()
            return code

    with ThreadPoolExecutor(_CLIENTS) as pool:
        codes = {code.name for code in pool.map(call, range(calls))}
    return f" ({', '.join(sorted(codes))})"


def _lists(server: Server) -> str:
    with _timed_statuses(server) as longest, ThreadPoolExecutor(_CLIENTS) as pool:
        found = set(pool.map(_count_jobs, repeat(server, _CLIENTS)))
    return f" ({', '.join(map(str, found))} found; longest other call {longest[0]:.2f} s)"


def _count_jobs(server: Server) -> int:
    request, found = pb.ListTrainingJobsRequest(page_size=1000), 0
    options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(server.address, options) as channel:
        stub = TrainingServiceStub(channel)
        while True:
            page = stub.ListTrainingJobs(request)
            found += len(page.jobs)
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token


def _unread_lists(server: Server) -> str:
    path, wanted = "/training.TrainingService/ListTrainingJobs", pb.ListTrainingJobsRequest(page_size=1000)
    with ExitStack() as open_connections:
        for _ in range(_CLIENTS):
            asked = unread_calls(server.address, 200 // _CLIENTS, path, wanted.SerializeToString())
            open_connections.enter_context(asked)
        time.sleep(_UNREAD_SECONDS)
    return ""


def _unread_logs(server: Server, calls: int) -> str:
    wanted = pb.GetTrainingLogsRequest(job_id=1).SerializeToString()
    with _unread(server, "GetTrainingLogs", calls, wanted), TrainingClient(server.address) as client:
        began = time.monotonic()
        size = sum(len(piece.text) for piece in client.logs(1))
        took = time.monotonic() - began
        time.sleep(_UNREAD_SECONDS)
    return f" (another client reads {size / _MB:.1f} MB in {took:.2f} s)"


def _unread_watches(server: Server, calls: int) -> str:
    wanted = pb.WatchTrainingRequest(job_id=1).SerializeToString()
    with _unread(server, "WatchTraining", calls, wanted), TrainingClient(server.address) as client:
        began = time.monotonic()
        next(iter(client.watch(1)))
        took = time.monotonic() - began
        time.sleep(_UNREAD_SECONDS)
    return f" (the watch of another client begins after {took:.2f} s)"


@contextmanager
def _unread(server: Server, method: str, calls: int, message: bytes) -> Iterator[None]:
    """During the block, keep 4 connections open from an address that no other client has.

    Make `calls` calls on each of them, and leave the answers unread.
    """
    with ExitStack() as open_connections:
        for _ in range(4):
            path = f"/training.TrainingService/{method}"
            open_connections.enter_context(unread_calls(server.address, calls, path, message, _STRANGER))
        yield


def _logs(server: Server) -> str:
    def read(_: int) -> int:
        with server.stub() as stub:
            wanted = pb.GetTrainingLogsRequest(job_id=1, tail_lines=10)
            return sum(len(piece.text) for piece in stub.GetTrainingLogs(wanted, timeout=120))

    with _timed_statuses(server) as longest, ThreadPoolExecutor(_CLIENTS) as pool:
        started = time.monotonic()
        list(pool.map(read, range(_CLIENTS)))
        took = time.monotonic() - started
    return f" (read in {took:.1f} s; longest other call {longest[0]:.2f} s)"


@contextmanager
def _timed_statuses(server: Server) -> Iterator[list[float]]:
    """Make status calls during the block.

    Yield a list with one number: the seconds of the longest call so far.
    """
    longest, over = [0.0], threading.Event()

    def ask() -> None:
        with server.stub() as stub:
            while not over.is_set():
                began = time.monotonic()
                stub.GetTrainingStatus(pb.GetTrainingStatusRequest(job_id=1))
                longest[0] = max(longest[0], time.monotonic() - began)

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        try:
            yield longest
        finally:
            over.set()
            asking.result()


def _status(server: Server) -> None:
    with server.stub() as stub:
        stub.GetTrainingStatus(pb.GetTrainingStatusRequest(job_id=1), timeout=30)


# --- data before the attack -----------------------------------------------------------------------


def _fill_large(data_dir: Path, jobs: int) -> None:
    async def submit() -> None:
        store = await SqliteStore.open(data_dir / "jobs.db")
        large, now = stored_spec(RECORD="x" * 60_000), datetime.now(UTC)
        try:
            await many(lambda _: store.submit(large, now, None, 1 << 40), range(jobs))
        finally:
            await store.close()

    asyncio.run(submit())


def _fill_log(data_dir: Path, content: bytes) -> None:
    """Fill the store with an ended job, and write `content` as its kept log."""
    fill(data_dir, _FINISHED)

    async def folder() -> str:
        store = await SqliteStore.open(data_dir / "jobs.db")
        try:
            return (await store.get(1)).group.job_folder
        finally:
            await store.close()

    place = data_dir / "storage" / "logs" / asyncio.run(folder()) / "1"
    place.mkdir(parents=True)
    (place / "0.log.gz").write_bytes(gzip.compress(content, 1))


if __name__ == "__main__":
    run_alone(measure)
