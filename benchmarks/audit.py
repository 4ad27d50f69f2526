"""The cost of the audit: calls of Train with an audit event in the same commit, compared with calls without
an event.

The same client (64 calls in flight, a separate process) calls two services in turn, in the same run. One is
the service that users have. The other (unaudited.py) writes no audit events. Each job is on the disk when
the call returns. The capacity is 1, and a job that never ends uses it, so no other job starts. The CPU time
of a call is measured, too, because it depends less than the rate on other programs on the machine. A second
part measures how long it takes to list a page of one caller's events, in a store with few events and in one
with many.
"""

import asyncio
import statistics
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import psutil

from benchmarks.support import (
    Client,
    Filling,
    Row,
    Server,
    fill,
    interleaved,
    ratio,
    run_alone,
    service,
    workspace,
)
from job_tracker.domain.audit import AuditEvent, Outcome
from job_tracker.store.audit import AuditFilter
from job_tracker.store.sqlite import SqliteStore
from training_service._generated import training_service_pb2 as pb

_FEW, _MANY, _PAGE = 10_000, 200_000, 100
_BATCH = 1000


def measure(quick: bool) -> list[Row]:
    seconds, rounds = (0.5, 9) if quick else (0.8, 41)
    with workspace() as folder, closing(Client()) as client:
        for name in ("with", "without"):
            fill(folder / name, Filling())
        unaudited = (sys.executable, "-m", "benchmarks.unaudited")
        with (
            service(folder / "with") as audited,
            service(folder / "without", program=unaudited) as without,
        ):
            begun = [_cpu_seconds(each) for each in (audited, without)]
            ours, theirs = interleaved(
                rounds,
                lambda: client.calls_per_second(audited, "Train", seconds=seconds),
                lambda: client.calls_per_second(without, "Train", seconds=seconds),
            )
            our_cpu, their_cpu = (
                (_cpu_seconds(each) - before) / _accepted(each)
                for each, before in zip((audited, without), begun, strict=True)
            )
        against, more = ratio(ours, theirs), our_cpu / their_cpu
        few, many, size = asyncio.run(_lists(folder, rounds))
    growth = ratio(many, few)
    return [
        Row(
            "audit: train with its event, calls/s against none",
            f"{statistics.median(ours):,.0f}/s",
            f"{statistics.median(theirs):,.0f}/s",
            f"{against:.2f}",
            "≥ 0.95",
            against >= 0.95,
        ),
        Row(
            "audit: CPU time of train with its event against none",
            f"{our_cpu * 1e6:.0f} µs",
            f"{their_cpu * 1e6:.0f} µs",
            f"{more:.2f}",
            "≤ 1.05",
            more <= 1.05,
        ),
        Row(
            f"audit: a page of one caller among {_MANY:,} events against {_FEW:,}",
            f"{statistics.median(many) * 1e3:.1f} ms",
            f"{statistics.median(few) * 1e3:.1f} ms",
            f"{growth:.2f}",
            "≤ 1.5",
            growth <= 1.5,
        ),
        Row("audit: bytes an event", f"{size:.0f}"),
    ]


def _cpu_seconds(server: Server) -> float:
    """Return the CPU time that the server has used so far."""
    times = psutil.Process(server.pid).cpu_times()
    return times.user + times.system


def _accepted(server: Server) -> int:
    """Return the id of the newest job: the number of accepted jobs, plus 1 for the job of `fill`."""
    with server.stub() as stub:
        return stub.ListTrainingJobs(pb.ListTrainingJobsRequest(page_size=1)).jobs[0].job_id


async def _lists(folder: Path, rounds: int) -> tuple[list[float], list[float], float]:
    """Measure how long it takes to list a page of one caller's events.

    Return the seconds of each page in a store with few events, the same in a store with many events, and the
    bytes per event of the larger store's file.
    """
    stores = []
    for number in (_FEW, _MANY):
        place = folder / f"events-{number}"
        place.mkdir()
        store = await SqliteStore.open(place / "jobs.db")
        stores.append(store)
        for start in range(0, number, _BATCH):
            await store.add_events([_event(start + each) for each in range(_BATCH)])
    found: list[list[float]] = [[], []]
    where = AuditFilter(project="vision", caller="caller-7")
    for _ in range(rounds):
        for store, times in zip(stores, found, strict=True):
            begun = asyncio.get_running_loop().time()
            assert len(await store.list_events(where, limit=_PAGE)) == _PAGE
            times.append(asyncio.get_running_loop().time() - begun)
    for store in stores:
        await store.close()
    return found[0], found[1], (folder / f"events-{_MANY}" / "jobs.db").stat().st_size / _MANY


def _event(number: int) -> AuditEvent:
    return AuditEvent(
        at=datetime.now(UTC),
        action="submit",
        outcome=Outcome.DONE,
        caller=f"caller-{number % 50}",
        means="token",
        credential="abcdefgh",
        address="ipv4:192.0.2.17",
        project="vision",
        target=f"job {number}",
        detail="algorithm language-model",
        request_id="0123456789abcdef0123456789abcdef",
    )


if __name__ == "__main__":
    run_alone(measure)
