"""Brings a job store that was restored from a backup up to date with the events since the backup.

Since the backup, new jobs have got ids that the restored store does not know. Jobs that were queued or
running at the backup may have made further attempts, or ended. So the store's records are compared with the
existing groups before any tracker runs. Otherwise, the service would give the same ids again, and would fail
jobs whose attempts ended after the backup.
"""

from collections import defaultdict
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from job_tracker.backends.base import Backend, snapshot_of
from job_tracker.domain.allocation import Allocation
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.group import Phase
from job_tracker.domain.job import TRANSITIONS, Ending, Job, JobState
from job_tracker.store.jobs import JobFilter, JobStore
from job_tracker.store.lease import Term

SKIPPED_IDS = 100_000
"""The number of ids to skip.

The number must exceed the number of ids that were given between the backup and the loss of the store.
"""

_UNFINISHED = frozenset(state for state in JobState if TRANSITIONS[state])
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of `catch_up`. `unfinished` is the number of jobs that had not ended at the backup."""

    unfinished: int
    taken_up: int
    """The number of jobs whose group exists.

    The group continues to run, or it has ended and its outcome counts.
    """
    repeated: int
    """The number of jobs that get another attempt, since the outcome of the last attempt is unknown."""
    strays: int
    """The number of jobs that have groups, but have ended or are unknown to the store.

    The service stops these groups.
    """
    last_skipped_id: int


async def catch_up(
    store: JobStore, backend: Backend, term: Term, now: datetime, *, last_given: int = 0
) -> Restored:
    """Skip the ids that may be in use, and move each unfinished job to its last attempt that has a group.

    A launching or running job without a group gets another attempt. `last_given` is the highest id that is
    known to be in use. The call may be repeated. Raises StoreUnavailable, BackendUnavailable, and
    LeadershipLost if another replica leads.
    """
    async with aclosing(backend.watch()) as watch:
        groups = await snapshot_of(watch)
    # This comes first: if the later steps are interrupted and a service starts, no id is given twice.
    beyond = max((last_given, *(group.job_id for group in groups)))
    skipped = await store.skip_ids(beyond=beyond, number=SKIPPED_IDS)
    there: dict[int, dict[int, int]] = defaultdict(dict)
    for group, seen in groups.items():
        if any(rank.phase is Phase.STOPPED for rank in seen.statuses):
            # The group was being stopped when the store was lost, so the group has no outcome of its own.
            await backend.stop(group, timedelta(0))
        else:
            there[group.job_id][group.attempt] = len(seen.statuses)
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


def caught_up(job: Job, there: Mapping[int, int], now: datetime) -> Job | None:
    """Return the job after its next move towards the newest attempt in `there`; None if no move is left.

    `there` has the number of instances of each existing group, by attempt. An attempt without a group has
    ended since the backup, or was never launched. Another attempt follows even if the retry policy allows
    none, since the job itself did not fail.
    """
    newest = max(there, default=0)
    match job.state:
        case JobState.QUEUED if newest > job.attempt:
            return job.admitted(now, _allocation_of(job, there.get(job.attempt + 1, 0)))
        case JobState.BACKOFF if newest > job.attempt:
            return job.queued_again(now)
        case JobState.LAUNCHING | JobState.RUNNING if job.ending is None and newest != job.attempt:
            # The backoff ends at once, since waiting would not help.
            return replace(job.ended(Ending(JobState.BACKOFF, now, _UNKNOWN), now), due_at=now)
    return None


def _allocation_of(job: Job, instances: int) -> Allocation | None:
    """Return the allocation of a group that was launched after the backup and has `instances` instances.

    None: the group has all instances, has no trainers, or does not exist.

    An elastic group may have fewer trainers than its spec. The allocation has only their number, since the
    flavor and the machines are unknown.
    """
    missing = job.spec.group.size - instances
    trainers = job.spec.group.trainers_count - missing
    return Allocation(trainers=trainers) if instances and missing and trainers > 0 else None


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
    summary="The job store was restored from a backup, and it is unknown how this attempt ended since then.",
    resolution="Nothing needs to be done: another attempt follows.",
    retryable=True,
)
