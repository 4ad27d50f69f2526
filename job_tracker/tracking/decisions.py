"""Decides the tracker's next step for a job: a pure function of the stored job and the observed group."""

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from job_tracker.backends.base import Observation
from job_tracker.common.printable import quoted
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.eviction import Eviction
from job_tracker.domain.group import Phase
from job_tracker.domain.job import Ending, Job, JobState


@dataclass(frozen=True, slots=True)
class Launch:
    """Start the group of the job's attempt, complete an interrupted start, or restart ranks."""


@dataclass(frozen=True, slots=True)
class Save:
    """Write this version of the job, then decide again."""

    job: Job


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the group, then write the end of the job or attempt."""

    ending: Ending


@dataclass(frozen=True, slots=True)
class Rest:
    """Do nothing until something changes, or until the time `at_most` has passed; None: there is no limit."""

    at_most: timedelta | None = None


_CAUSE_SECONDS = 1.0

Step = Launch | Save | Stop | Rest


def next_step(
    job: Job,
    seen: Observation | None,
    *,
    launched: bool,
    now: datetime,
    finish_grace: timedelta,
    stall: Diagnosis | None = None,
    restarts_ranks: bool = True,
) -> Step:
    """Return the next step for a job that has not ended.

    `seen` is None if the backend does not have the group of the job's attempt.

    `launched` says whether this tracker knows that the launch of the attempt is complete. It is false in
    a tracker that has just started. Then the stored job decides (`was_launched`): if in doubt, the launch
    is repeated. After a complete launch, missing ranks are never launched again, since they may have run.
    `Launch` then only restarts ranks.

    `finish_grace` is the time that workers may run after their master has succeeded. `stall` is the reason
    why the attempt no longer makes progress; None if it has not stalled. `restarts_ranks` says whether a
    worker of an elastic group may be restarted alone.
    """
    if seen is not None:
        seen = without_lost(job, seen, is_over=job.ending is not None)
    if job.ending is not None:
        current = job if seen is None else job.observed(seen.statuses)
        if seen is not None and (own := ended_by_itself(current, seen, now)) is not None:
            return Save(own)
        if seen is not None and (failure := _failed_after_success(job.ending, seen, now, finish_grace)):
            if (wait := _wait_for_root_cause(seen, now)) is not None:
                return Rest(at_most=wait)
            return Save(current.failed(failure, now))
        if current != job:
            return Save(current)  # otherwise, a service crash during the stop would lose how ranks ended
        return _end(job.ending, seen, now, finish_grace)
    if (bounded := job.due_in_time(now)) != job:
        return Save(bounded)
    is_due = job.due_at is not None and now >= job.due_at
    match job.state:
        case JobState.QUEUED:
            # The job has no group to stop, so the job ends at once.
            return (
                Save(job.ended(Ending(JobState.FAILED, now, _queued_too_long(job)), now))
                if is_due
                else Rest()
            )
        case JobState.BACKOFF:
            return Save(job.queued_again(now)) if is_due else Rest()
    if seen is not None and (eviction := _eviction(seen)) is not None:
        return Save(job.observed(seen.statuses, seen.program).evicted(eviction, now))
    if job.state is JobState.LAUNCHING and not (launched or job.was_launched):
        return Launch()
    if seen is None:
        return Save(job.failed(_VANISHED, now))
    if len(seen.ranks) != job.instances:
        return Save(job.failed(seen.first_failure or _VANISHED, now))
    if job.state is JobState.RUNNING and (diverged := divergence(job)) is not None:
        return Save(job.observed(seen.statuses, seen.program).failed(diverged, now))
    if not launched and any(rank.restarts for rank in job.ranks):
        return Launch()  # a restart may have been interrupted
    current = job.observed(seen.statuses, seen.program)
    master = seen.master.status.phase
    if current.is_gated != job.is_gated:
        return Save(current.with_gate_deadline(now))
    if any(rank.restarts < job.restarts_of(rank.rank) for rank in seen.statuses):
        return Launch()
    if restarts_ranks and (lost := _restartable_worker(job, seen)) is not None:
        return Save(current.restarting(*lost, now))
    serves = job.spec.group.ends_with_master and master is Phase.SUCCEEDED  # other ranks no longer matter
    if seen.first_failure is not None and not serves:
        if (wait := _wait_for_root_cause(seen, now)) is not None:
            return Rest(at_most=wait)
        return Save(current.failed(seen.first_failure, now))
    if any(rank.phase is Phase.STOPPED for rank in seen.statuses):
        return Save(current.failed(_VANISHED, now))
    if job.state is JobState.LAUNCHING and master is not Phase.PENDING:
        return Save(current.running(now))
    if job.state is JobState.RUNNING and master is Phase.SUCCEEDED:
        return Save(current.decided(Ending(JobState.SUCCEEDED, now, at_once=job.spec.group.ends_with_master)))
    if stall is not None and job.state is JobState.RUNNING and master is Phase.RUNNING:
        if stall.rank and restarts_ranks and _may_restart(job):
            return Save(current.restarting(stall.rank, stall, now))
        return Save(current.failed(stall, now))
    if is_due:
        why = _queued_too_long(current) if current.is_gated else _deadline_exceeded(current)
        return Save(current.failed(why, now))
    return Rest() if current == job else Save(current)


def without_lost(job: Job, seen: Observation, *, is_over: bool) -> Observation:
    """Return the observation without the failures of ranks that the job's group may lose.

    Once the training of an elastic group is complete, all but `min_instances` of its instances may fail. For
    `is_over`, see Observation.without_lost.
    """
    group = job.spec.group
    if group.elastic is not None:
        return seen.without_late(len(seen.ranks) - group.elastic.min_instances)
    return seen.without_lost(group.max_lost, job.ranks, is_over=is_over)


def ended_by_itself(job: Job, seen: Observation, now: datetime) -> Job | None:
    """Return the next version of a preempted or evicted job if its attempt has ended by itself, or None.

    These ends count: the success of the master; an exit of the master with code 0 after a stop, if all steps
    are done; and the failure of a rank before the notice or at an unknown time. After a later failure, return
    None: the failure may be a consequence of the notice, since the rank may have lost its peers, or its save
    may have failed. If the group ends with its master, failures do not matter once the master has succeeded.
    """
    if job.ending is None or job.ending.state is not JobState.QUEUED:
        return None
    master = seen.master.status
    failure = seen.first_failure
    has_done_all = (
        master.phase is Phase.STOPPED
        and master.exit_code == 0
        and job.progress is not None
        and job.progress.has_all_steps
    )
    serves = job.spec.group.ends_with_master and master.phase is Phase.SUCCEEDED
    if failure is not None and not serves:
        return job.failed(failure, now) if _failed_before(seen, job.ending.noticed_at) else None
    if master.phase is not Phase.SUCCEEDED and not has_done_all:
        return None
    if job.state is JobState.LAUNCHING:
        return replace(job.running(now), due_at=None)
    return job.decided(Ending(JobState.SUCCEEDED, now, at_once=job.spec.group.ends_with_master))


def _eviction(seen: Observation) -> Eviction | None:
    """Return the eviction notice because of which the attempt has to be stopped.

    None: there is no notice, the master has succeeded, or a rank failed before the notice or at an unknown
    time.
    """
    notice = seen.eviction
    if notice is None or seen.master.status.phase is Phase.SUCCEEDED:
        return None
    return None if _failed_before(seen, notice.at.timestamp()) else notice


def _failed_before(seen: Observation, notice: float) -> bool:
    """Return whether a rank failed before a notice (in seconds since 1970), or at an unknown time.

    The time is unknown, for example, if the rank's pod was deleted without a grace period. A notice never
    leads to such a failure.
    """
    return any(rank.diagnosis and (rank.ended_at or 0.0) < notice for rank in seen.ranks)


def divergence(job: Job) -> Diagnosis | None:
    """Return the diagnosis if the attempt has reported NaN or infinity and the job's policy forbids this.

    Otherwise, return None.

    The diagnosis depends on the stored job alone. So the same diagnosis is made again after a crash of the
    service, and repeated reports do not change it.
    """
    reported = job.progress.nonfinite if job.progress else ()
    first = next((each for each in reported if job.spec.numbers.forbids(each.metric)), None)
    if first is None:
        return None
    where = "" if first.rank is None else f" on rank {first.rank}"
    return Diagnosis(
        category=Category.DIVERGED,
        summary=f"The training diverged: {quoted(first.metric)} is {number(first.value)} at step {first.step}"
        f"{where}.",
        resolution="Lower the learning rate or warm it up, clip the gradients, and check the data of this "
        "step. In fp16 use a gradient scaler, or train in bf16. With --on-nonfinite=flag, the attempt "
        "goes on.",
        rank=first.rank,
    )


def number(value: float) -> str:
    """Return the text for a number that is not finite: NaN, infinity or -infinity."""
    return "NaN" if math.isnan(value) else "infinity" if value > 0 else "-infinity"


def _restartable_worker(job: Job, seen: Observation) -> tuple[int, Diagnosis] | None:
    """Return the rank of a failed worker that may be restarted, and its diagnosis; None if there is none."""
    if seen.master.status.phase is not Phase.RUNNING or not _may_restart(job):
        return None
    return next(((rank.status.rank, rank.diagnosis) for rank in seen.ranks if rank.diagnosis), None)


def _may_restart(job: Job) -> bool:
    """Return whether the job's group is elastic, and its attempt may have one more restart of a worker."""
    elastic = job.spec.group.elastic
    return elastic is not None and sum(rank.restarts for rank in job.ranks) < elastic.max_restarts


def _wait_for_root_cause(seen: Observation, now: datetime) -> timedelta | None:
    """Return the time to wait before a crash counts as the root cause; None: do not wait.

    The wait is needed because the rank may have crashed after the loss of a peer whose end is observed later.
    """
    failure, failed_at = seen.first_failure, seen.failed_at
    if failure is None or failure.category is not Category.CRASHED or seen.has_ended or failed_at is None:
        return None
    left = failed_at + _CAUSE_SECONDS - now.timestamp()
    return timedelta(seconds=left) if 0 < left <= _CAUSE_SECONDS else None


def _failed_after_success(
    ending: Ending, seen: Observation, now: datetime, finish_grace: timedelta
) -> Diagnosis | None:
    """Return the failure of a worker within `finish_grace` after the success of the master; None: no failure.

    Such a failure counts as if the worker had failed before the master ended. Later failures do not count,
    since the service itself may have ended the worker.
    """
    if ending.state is not JobState.SUCCEEDED or ending.at_once:
        return None
    return seen.first_failure if now <= ending.decided_at + finish_grace else None


def _end(ending: Ending, seen: Observation | None, now: datetime, finish_grace: timedelta) -> Step:
    if ending.state is JobState.SUCCEEDED and not ending.at_once and seen is not None and not seen.has_ended:
        left = ending.decided_at + finish_grace - now
        if timedelta(0) < left <= finish_grace:  # a longer wait means that the clock was set back
            return Rest(at_most=left)
    return Stop(ending)


def _queued_too_long(job: Job) -> Diagnosis:
    return Diagnosis(
        category=Category.QUEUED_TOO_LONG,
        summary=f"The job was queued for longer than its deadline ({job.spec.deadlines.queue}).",
        resolution="Submit it again when the queue is shorter, with fewer instances, or with a longer "
        "deadlines.queue.",
        detail=job.gate_note,
    )


def _deadline_exceeded(job: Job) -> Diagnosis:
    if job.state is JobState.RUNNING:
        return Diagnosis(
            category=Category.DEADLINE_EXCEEDED,
            summary=f"The attempt ran for longer than its deadline ({job.spec.deadlines.run}).",
            resolution="Shorten the training (fewer epochs, more instances), or submit the job with a longer "
            "deadlines.run.",
        )
    notes = ((rank.rank, rank.note.removesuffix(".")) for rank in job.ranks if rank.note)
    waiting = [f"Rank {rank}: {note}." for rank, note in notes] or [job.waits_for]
    return Diagnosis(
        category=Category.NEVER_STARTED,
        summary=f"The master did not start within its deadline ({job.spec.deadlines.start}).",
        resolution="See the detail for what the group waited for, if this is known. Request less (resources, "
        "node_selector), add machines, or submit the job with a longer deadlines.start.",
        detail="\n".join(waiting) or "The service does not know what the group waited for.",
    )


_VANISHED = Diagnosis(
    category=Category.GROUP_VANISHED,
    summary="The group of processes disappeared without a result.",
    resolution="Something other than the service removed it. Submit the job again.",
    retryable=True,
)
