"""Makes a job store that was restored from a backup agree with what has happened since the backup.

The store is older than the world. Ids were given that it does not know; attempts were launched, and have
ended, that it has as queued or as running. Nothing that it records may be believed before it was compared
with the groups that are there: a tracker alone would give ids again, and take an attempt that has ended
since for one that vanished. To be done while no tracker runs.
"""

from collections import defaultdict
from collections.abc import Set
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from job_tracker.backends.base import Backend, snapshot_of
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.group import Phase
from job_tracker.domain.job import TRANSITIONS, Ending, Job, JobState
from job_tracker.store.jobs import JobFilter, JobStore
from job_tracker.store.lease import Term

SKIPPED_IDS = 100_000
"""How many ids are left out: more than were given between the backup and the loss of the store."""

_UNFINISHED = frozenset(state for state in JobState if TRANSITIONS[state])
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Restored:
    """What became of the jobs that had not ended at the time of the backup."""

    unfinished: int
    taken_up: int
    """Of them, those with a group that is there: it runs on, or has ended and its outcome counts."""
    repeated: int
    """Those whose attempt is followed by another, since its outcome is not known."""
    strays: int
    """Jobs with a group that the backup does not have as unfinished: the service ends these groups."""
    last_skipped_id: int


async def catch_up(
    store: JobStore, backend: Backend, term: Term, now: datetime, *, last_given: int = 0
) -> Restored:
    """Skip the ids that may have been given, and move each unfinished job to the last attempt that is there.

    `last_given` is the highest id that is known to have been given. It may be repeated. Raises
    StoreUnavailable and BackendUnavailable, and LeadershipLost if a tracker has begun.
    """
    async with aclosing(backend.watch()) as watch:
        groups = await snapshot_of(watch)
    # First of all: should the rest be cut short, no id is given twice whoever starts a service then.
    beyond = max((last_given, *(group.job_id for group in groups)))
    skipped = await store.skip_ids(beyond=beyond, number=SKIPPED_IDS)
    there: dict[int, set[int]] = defaultdict(set)
    for group, seen in groups.items():
        if any(rank.phase is Phase.STOPPED for rank in seen.statuses):
            # It was being stopped when the service was lost, and has no outcome of its own to be taken up.
            await backend.stop(group, timedelta(0))
        else:
            there[group.job_id].add(group.attempt)
    jobs = await _unfinished(store)
    taken_up = repeated = 0
    for job in jobs:
        was_live = job.state.is_live and job.ending is None
        while (moved := caught_up(job, there[job.id], now)) is not None:
            job = await store.update(moved, term=term)
        is_live = job.state.is_live and job.ending is None
        taken_up += is_live
        repeated += was_live and not is_live
    known = {job.id for job in jobs}
    strays = len(set(there) - known)
    return Restored(len(jobs), taken_up, repeated, strays, skipped)


def caught_up(job: Job, there: Set[int], now: datetime) -> Job | None:
    """The job's next move towards the newest of its attempts that is `there`; None if it has made the last.

    An attempt that is not there has ended since the backup, or was never launched: another follows, which
    the job's policy is not asked about, as it is not the job that failed.
    """
    newest = max(there, default=0)
    match job.state:
        case JobState.QUEUED if newest > job.attempt:
            return job.admitted(now)
        case JobState.BACKOFF if newest > job.attempt:
            return job.queued_again(now)
        case JobState.LAUNCHING | JobState.RUNNING if job.ending is None and newest != job.attempt:
            # Without a pause: there is nothing that has to recover first.
            return replace(job.ended(Ending(JobState.BACKOFF, now, _UNKNOWN), now), due_at=now)
    return None


async def _unfinished(store: JobStore) -> list[Job]:
    found: list[Job] = []
    before = None
    where = JobFilter(states=_UNFINISHED)
    while page := (await store.list_jobs(where, limit=_PAGE, before=before)).jobs:
        found += page
        before = page[-1].id
    return found


_UNKNOWN = Diagnosis(
    category=Category.GROUP_VANISHED,
    summary="The job store was restored from a backup; how this attempt ended since then is not known.",
    resolution="Nothing is to be done: another attempt follows.",
    retryable=True,
)
