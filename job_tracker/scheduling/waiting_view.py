"""The reasons why a job waits, without facts that the caller may not see.

Every replica can compute these reasons.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from job_tracker.domain.caller import Caller
from job_tracker.domain.job import Job, JobState
from job_tracker.scheduling.estimates import Estimate
from job_tracker.scheduling.explanations import explain as explain_gang
from job_tracker.scheduling.leaving import leaving_for
from job_tracker.scheduling.mirror import Label, Mirror, Seen
from job_tracker.scheduling.model import Expected, Promise, Reason, Running
from job_tracker.scheduling.remedies import Remedy
from job_tracker.scheduling.running import instances_of, resized, trainers_of

_MOST_HOLDERS: Final = 100
_REMEDY_SECONDS: Final = 0.5
"""The time limit of the search for a remedy: other callers wait for their answers during the search.

After this time, only the remedy with the largest change is still tried.
"""


class Source(StrEnum):
    """The source of the expected run time of a job. The codes are stable: they are in the API."""

    GIVEN = "given"
    """The caller that submitted the job has stated the time."""
    LEARNED = "learned"
    """The time was learned from earlier attempts of the same algorithm, if possible from similar jobs."""
    DEADLINE = "deadline"
    """The time is the job's deadline for running: no attempt runs longer."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Holder:
    """A job that holds capacity."""

    job_id: int
    label: Label
    queue: str
    instances: int
    admitted_at: float
    """The time at which the job was admitted, in Unix seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The reasons why a job waits.

    There are no reasons if the job waits neither in a queue of this service nor in the cluster's own queue.
    """

    job: Job
    position: int = 0
    """The number of waiting jobs of the same queue that were submitted before this one."""
    reasons: tuple[Reason, ...] = ()
    """The reasons, the decisive one first."""
    gate_note: str = ""
    """The message of the cluster's own queue about the group, if the group waits in that queue."""
    promise: Promise | None = None
    moved_because: str = ""
    estimate: Estimate | None = None
    """The expected start. None: the job does not wait, or it cannot start with the present capacity, queues
    and room for launches, or the cluster's own queue decides when it starts."""
    expected: Expected | None = None
    """The expected run time of an attempt."""
    source: Source = Source.UNKNOWN
    remedy: Remedy | None = None
    holders: Sequence[Holder] = ()
    """The jobs that hold resources which this job needs, and that the caller may see, the largest first."""
    other_holders: int = 0
    other_instances: int = 0
    """The number of instances of jobs that hold such resources but are not in `holders`: the caller may not
    see them, or the list is full.
    """
    stopping: Sequence[Holder] = ()
    """The jobs that are being stopped for this job, and that the caller may see."""
    other_stopping: int = 0


async def explain(mirror: Mirror, caller: Caller, job: Job, position: int) -> Explanation:
    """Return why the job waits. `position` is as in Explanation."""
    if job.is_gated:
        return Explanation(job=job, reasons=(Reason.DELEGATED,), gate_note=job.gate_note)
    if job.state is not JobState.QUEUED:
        return Explanation(job=job)

    def answer(seen: Seen) -> Explanation:
        return _explained(seen, caller, job, position)

    return await mirror.ask(answer)


def source_of(job: Job, expected: Expected | None) -> Source:
    """Return the source of the expected run time of a job."""
    if job.spec.expected is not None:
        return Source.GIVEN
    if expected is None:
        return Source.UNKNOWN
    return Source.LEARNED if expected.is_learned else Source.DEADLINE


def _explained(seen: Seen, caller: Caller, job: Job, position: int) -> Explanation:
    snapshot = seen.situation.snapshot
    gang = snapshot.waiting.get(job.id)
    if gang is None:  # the job has just left the queue, or is too far back for the mirror (MOST_QUEUED)
        reason = Reason.ORDER if position else Reason.PENDING
        return Explanation(job=job, position=position, reasons=(reason,))
    until = time.monotonic() + _REMEDY_SECONDS
    found = explain_gang(seen.situation, job.id, seen.options, seen.tree.pool.priorities, until)
    visible, others, others_hold = _holders(seen, caller, found.holders)
    has_promise = found.reserve is not None and found.reasons[0] is not Reason.ROOM
    stopping, other_stopping, _ = _holders(seen, caller, leaving_for(snapshot, job.id))
    return Explanation(
        job=job,
        position=position,
        reasons=found.reasons,
        promise=found.reserve.promise if found.reserve and has_promise else None,
        moved_because=found.reserve.moved_because if found.reserve and has_promise else "",
        estimate=found.estimate,
        expected=gang.expected,
        source=source_of(job, gang.expected),
        remedy=found.remedy,
        holders=visible,
        other_holders=others,
        other_instances=others_hold,
        stopping=stopping,
        other_stopping=other_stopping,
    )


def _holders(seen: Seen, caller: Caller, job_ids: Sequence[int]) -> tuple[list[Holder], int, int]:
    """Return the holders that the caller may see, the number of other holders, and the number of their
    instances.
    """
    runs = [(_instances(seen, run), run) for job_id in job_ids if (run := _run(seen, job_id)) is not None]
    runs.sort(key=lambda each: (-each[0], each[1].gang.job_id))
    visible: list[Holder] = []
    others = others_hold = 0
    for instances, run in runs:
        label = seen.labels.get(run.gang.job_id)
        may_see = label is not None and caller.role_in(label.project) is not None
        if label is None or not may_see or len(visible) == _MOST_HOLDERS:
            others, others_hold = others + 1, others_hold + instances
            continue
        visible.append(Holder(run.gang.job_id, label, run.gang.queue, instances, run.started_at))
    return visible, others, others_hold


def _instances(seen: Seen, run: Running) -> int:
    """Return the number of instances of a running job: now or in its next size, whichever is larger."""
    stake = seen.situation.snapshot.stakes.get(run.gang.job_id)
    trainers = max(trainers_of(run), stake.goes_on if stake is not None else 0)
    return instances_of(resized(run, trainers))


def _run(seen: Seen, job_id: int) -> Running | None:
    return seen.situation.snapshot.running.get(job_id)
