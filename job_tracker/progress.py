"""How far a training is: read out of what its master prints.

Any program in any language can report: one line on standard output, `::progress:: ` and a JSON object,
such as

    ::progress:: {"step": 12, "total_steps": 360, "epoch": 2, "total_epochs": 15, "metrics": {"loss": 0.41}}

Every key may be left out, and then keeps its last value.
"""

import asyncio
import json
import logging
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from job_tracker.backends.base import Backend
from job_tracker.errors import LogsNotFound, TrackerError
from job_tracker.logs.records import texts_of
from job_tracker.model import MASTER_RANK, GroupRef, Job, Progress
from job_tracker.store.base import JobStore, Term

log = logging.getLogger(__name__)

MARKER = "::progress:: "
_COUNTS = ("step", "total_steps", "epoch", "total_epochs")
_MOST_METRICS = 64
_LONGEST_NAME = 128
_LARGEST_COUNT = 2**53

# A log that is taken up again is read from near its end: what came before is in the store.
_TAIL_LINES = 200
_WRITE_SECONDS = 0.5
_DRAIN_SECONDS = 2.0


def parse(line: str, last: Progress, at: datetime) -> Progress | None:
    """The progress after this line; None if it does not report any, or not in this form."""
    if not line.startswith(MARKER):
        return None
    try:
        report = json.loads(line[len(MARKER) :])
    except (ValueError, RecursionError):
        return None
    if not isinstance(report, dict):
        return None
    counts = {name: report[name] for name in _COUNTS if _is_count(report.get(name))}
    metrics = report.get("metrics")
    merged = dict(last.metrics)
    for name, value in metrics.items() if isinstance(metrics, dict) else ():
        if _is_metric(name, value) and (name in merged or len(merged) < _MOST_METRICS):
            merged[name] = float(value)
    return replace(last, **counts, metrics=merged, reported_at=at)


class ProgressReader:
    """Follows the log of every running master, and keeps its last report in the store."""

    def __init__(
        self, store: JobStore, backend: Backend[Any], term: Term, clock: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._backend = backend
        self._term = term
        self._clock = clock
        self._readers: dict[GroupRef, asyncio.Task[None]] = {}

    def follow(self, job: Job) -> None:
        """See to it that the job's group is followed."""
        if job.group not in self._readers:
            self._readers[job.group] = asyncio.create_task(self._read(job), name=f"progress-{job.id}")

    async def finish(self, group: GroupRef) -> None:
        """Take in what an ended group reported last."""
        reader = self._readers.pop(group, None)
        if reader is not None:
            await asyncio.wait([reader], timeout=_DRAIN_SECONDS)
            await _cancel(reader)

    async def close(self) -> None:
        """Follow nothing any more."""
        for reader in self._readers.values():
            await _cancel(reader)
        self._readers.clear()

    async def _read(self, job: Job) -> None:
        latest = job.progress or Progress()
        changed = asyncio.Event()

        async def save() -> None:
            changed.clear()
            with suppress(TrackerError):  # the next report says more than this one
                await self._store.record_progress(job.id, job.attempt, latest, term=self._term)

        async def save_now_and_then() -> None:
            while await changed.wait():
                await save()
                await asyncio.sleep(_WRITE_SECONDS)

        saver = asyncio.create_task(save_now_and_then())
        try:
            pieces = self._backend.logs(job.group, MASTER_RANK, follow=True, tail_lines=_TAIL_LINES)
            async for text in texts_of(pieces):
                for line in text.splitlines():
                    if reported := parse(line, latest, self._clock()):
                        latest = reported
                        changed.set()
            if changed.is_set():
                await save()
        except LogsNotFound:
            pass
        except TrackerError as error:
            log.warning("job %d: its progress is not followed any more: %s", job.id, error)
        finally:
            await _cancel(saver)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_COUNT


def _is_metric(name: object, value: object) -> bool:
    return (
        isinstance(name, str)
        and 0 < len(name) <= _LONGEST_NAME
        and name.isprintable()
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) <= 1e300
        and math.isfinite(value)
    )
