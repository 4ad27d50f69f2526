"""The ways to copy a dataset from storage to the ranks: bytes and time, with links of 200 Mbit/s.

    python -m benchmarks.staging [--quick]      (as root: five machines of `links`)

One machine is the storage, an HTTP server of files. The others are four ranks. Each way copies a file of S
bytes to the disks of all ranks. The bytes that the storage and the busiest rank send are counted at their
links. They include the headers of packets, and are compared with the formulas of `trainer_kit.staging.ways`.
Every way takes at least the time in which a link carries S bytes, because each rank must receive all of them.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.links import Machine, Running, emulated, missing, place
from benchmarks.support import Row, run_alone

RANKS, MEGABITS = 4, 200
PORT = 8000

_SERVER = f"""
import sys
from aiohttp import web
site = web.Application()
site.router.add_static("/", sys.argv[1], show_index=True)
web.run_app(site, port={PORT}, print=None)
"""

_RANK = """
import json, sys, time
from trainer_kit.group import join
from trainer_kit.progress import Reporter
from trainer_kit.report_sinks import NullSink
from trainer_kit.staging import staged

class Reports(Reporter):
    def report(self, **metrics):
        self.seen = metrics

with join() as group:
    reports = Reports(NullSink())
    group.barrier()
    with staged(group, sys.argv[1], reports):
        group.barrier()
    print(json.dumps(reports.seen))
"""


def measure(quick: bool) -> list[Row]:
    if lacking := missing():
        return [Row("staging: bytes and time", f"not measured: it needs {lacking}")]
    size = (8 if quick else 64) << 20
    links = [Machine(rate=f"{MEGABITS}mbit") for _ in range(RANKS + 1)]
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, emulated(links) as machines:
        (Path(folder) / "data").mkdir()
        (Path(folder) / "data/examples").write_bytes(os.urandom(size))
        storage, *ranks = machines
        server = storage.start(sys.executable, "-c", _SERVER, folder)
        try:
            _await_server(ranks[0], storage)
            uri = f"http://{storage.address}:{PORT}/data"
            return [
                _row(way, formula, _staged(way, uri, ranks, storage), size)
                for way, formula in {
                    "direct": (RANKS, 0.0),
                    "broadcast": (1, (RANKS - 1).bit_length()),
                    "relay": (1, 1.0),
                    "shards": (1, (RANKS - 1) / RANKS),
                }.items()
            ]
        finally:
            server.kill()
            server.wait()


def _row(way: str, formula: tuple[float, float], seen: tuple[float, float, float], size: int) -> Row:
    of_storage, busiest, seconds = seen
    least = size * 8 / (MEGABITS * 10**6)
    return Row(
        f"staging: {way}, {size >> 20} MiB to {RANKS} ranks",
        f"{of_storage / size:.2f} S read, {busiest / size:.2f} S sent by the busiest rank, {seconds:.1f} s",
        f"{formula[0]:.2f} S, {formula[1]:.2f} S, {least:.1f} s",
        f"{seconds / least:.2f} x the least time",
        "bytes as the formula, with headers",
        met=of_storage / size < 1.1 * formula[0] and busiest / size < 1.1 * formula[1] + 0.1,
    )


def _staged(way: str, uri: str, machines: list[Running], storage: Running) -> tuple[float, float, float]:
    """Stage the file by `way`.

    Return the bytes sent by the storage, the bytes sent by the busiest rank, and the seconds that the slowest
    rank took.
    """
    before = [machine.sent_bytes() for machine in [storage, *machines]]
    ranks = [
        machine.start(
            *(sys.executable, "-c", _RANK, uri),
            environment={**place(rank, machines), "DATA_STAGING": way},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank, machine in enumerate(machines)
    ]
    try:
        outputs = [rank.communicate(timeout=300) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    if any(rank.returncode for rank in ranks):
        raise SystemExit(f"staging: a rank failed by {way}: " + "".join(errors for _, errors in outputs))
    seen: list[dict[str, Any]] = [json.loads(output) for output, _ in outputs]
    after = [machine.sent_bytes() for machine in [storage, *machines]]
    sent = [late - early for late, early in zip(after, before, strict=True)]
    return sent[0], max(sent[1:]), max(each["staging_seconds"] for each in seen)


def _await_server(rank: Running, storage: Running) -> None:
    probe = f"import socket; socket.create_connection(({storage.address!r}, {PORT}), 1)"
    for _ in range(100):
        if not rank.start(sys.executable, "-c", probe, stderr=subprocess.DEVNULL).wait():
            return
        time.sleep(0.1)
    raise SystemExit("staging: the file server did not start")


if __name__ == "__main__":
    run_alone(measure)
