"""A job: its spec, its state and the moves between states."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from job_tracker.domain import naming
from job_tracker.domain.allocation import Allocation
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.errors import IllegalMove
from job_tracker.domain.eviction import Eviction
from job_tracker.domain.group import GroupRef, GroupSpec, Phase, RankStatus
from job_tracker.domain.history import Ending as Ending
from job_tracker.domain.history import Move as Move
from job_tracker.domain.history import Preemption as Preemption
from job_tracker.domain.history import PreemptionReason as PreemptionReason
from job_tracker.domain.job_spec import JobSpec
from job_tracker.domain.progress import Progress
from job_tracker.domain.remains import Remains
from job_tracker.domain.states import LIVE_STATES as LIVE_STATES
from job_tracker.domain.states import TRANSITIONS as TRANSITIONS
from job_tracker.domain.states import JobState as JobState

_OF_NO_ATTEMPT = frozenset({Category.PLACE_TAKEN})
"""The categories of failures before the attempt has begun to run.

After such a failure, there is another attempt even if the retry policy allows none.
"""
_MOST_UNCOUNTED = 20
"""The largest number of a job's failures in _OF_NO_ATTEMPT that do not count as attempts.

Further failures count, so that a job that the engine never accepts ends eventually.
"""
MOST_EVICTIONS = 100
"""The largest number of evictions of a job.

A further eviction counts as a failure, so that a job whose pods are always deleted ends eventually.
"""
_DETAIL_IN_MOVES = 1000  # characters
_MAX_RESTARTS_IN_MOVES = 100  # only the newest are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One version of a job. Each change makes a new Job, and the store keeps only the newest one."""

    id: int
    version: int
    spec: JobSpec
    state: JobState
    submitted_at: datetime
    attempt: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None
    ranks: tuple[RankStatus, ...] = ()
    ending: Ending | None = None
    progress: Progress | None = None
    program: str = ""
    """The image, with its digest if known, or the command of the last attempt's master. Empty: unknown."""
    due_at: datetime | None = None
    """A deadline, or the end of a backoff: the time at which the job leaves its state if nothing else happens
    before."""
    history: tuple[Move, ...] = ()
    """The moves since the submission; of the restarts of ranks, only the newest 100."""
    tags: tuple[str, ...] = ()
    """The tags, sorted.

    Tags and note may change in every state. Such a change makes no new version. Of tags and note, only the
    tag HELD matters to the tracker.
    """
    note: str = ""
    allocation: Allocation | None = None
    """The allocation of the current or last attempt. None: the job has had no attempt since it was last
    queued, or an earlier version of the service launched the attempt."""

    @property
    def group(self) -> GroupRef:
        """Return the group of the current attempt."""
        return self.remains.group_of(self.attempt)

    @property
    def remains(self) -> Remains:
        """Return the data to remove when the job is deleted: its groups and its logs."""
        return Remains(self.id, self.spec.algorithm, self.spec.home, self.attempt)

    @property
    def groups(self) -> list[GroupRef]:
        """Return the groups of all attempts so far."""
        return self.remains.groups

    @property
    def diagnosis(self) -> Diagnosis | None:
        """Return the failure of the job, or the decided failure of its attempt; None if there is none."""
        return self.ending.diagnosis if self.ending else None

    @property
    def has_model(self) -> bool | None:
        """Return whether there were files at `model_uri` when the job succeeded; None if unknown."""
        return self.ending.has_model if self.ending else None

    @property
    def last_failure(self) -> Diagnosis | None:
        """Return the failure of the job or its attempt, or else the last failure in its history.

        The history also has the failures of ranks that were restarted. None: there was no failure.
        """
        reasons = (move.diagnosis for move in reversed(self.history) if move.diagnosis)
        return self.diagnosis or next(reasons, None)

    @property
    def preemptions(self) -> int:
        """Return how many attempts were preempted. Attempts that were resized do not count."""
        return sum(move.preemption is not None and not move.preemption.is_resize for move in self.history)

    @property
    def evictions(self) -> int:
        """Return how many attempts were evicted. Evicted attempts do not count towards `max_attempts`."""
        return sum(move.eviction is not None for move in self.history)

    @property
    def _interruptions(self) -> int:
        """The number of attempts that were preempted, resized or evicted."""
        return sum(move.is_uncounted for move in self.history)

    @property
    def max_attempts(self) -> int:
        """Return how many attempts the job may make, including preempted, resized and evicted ones.

        After failures in _OF_NO_ATTEMPT, the job may make more.
        """
        return self.spec.retry.max_attempts + self._interruptions

    @property
    def preemption(self) -> Preemption | None:
        """Return the preemption that stops the attempt or has put the job back into the queue, or None."""
        if self.ending is not None:
            return self.ending.preemption if self.ending.state is JobState.QUEUED else None
        return self.history[-1].preemption if self.history and self.state is JobState.QUEUED else None

    @property
    def interrupted(self) -> str:
        """Return why the attempt is being interrupted, or why the queued job was interrupted before.

        An interruption is a preemption, a resize or an eviction. "": there is none.
        """
        return why_again(self) if self.ending is None else self.ending.sentence(self.spec.project)

    @property
    def folder(self) -> str:
        """Return the job's path, relative to the root folders of models, checkpoints and logs alike."""
        return naming.job_folder(self.spec.home, self.id)

    @property
    def model_uri(self) -> str:
        """Return the folder of the trained model. Each job has its own folder."""
        return f"{self.spec.model_root}/{self.folder}"

    @property
    def checkpoint_uri(self) -> str:
        """Return the folder of the job's checkpoints, which its attempts share."""
        return f"{self.spec.checkpoint_root}/{self.folder}"

    @property
    def was_launched(self) -> bool:
        """Return whether the launch of the current attempt is known to be complete.

        The ranks of an attempt are stored right after its launch is complete, and never earlier.
        """
        return bool(self.ranks)

    @property
    def admitted_at(self) -> datetime | None:
        """Return when the last attempt was admitted; None if there was no attempt."""
        launching = (move for move in reversed(self.history) if move.state is JobState.LAUNCHING)
        return next((move.at for move in launching if not move.is_restart), None)

    @property
    def instances(self) -> int:
        """Return the number of instances of the attempt.

        The attempt of an elastic job may have fewer instances than the job asks for.
        """
        return self.allocated_group.size

    @property
    def allocated_group(self) -> GroupSpec:
        """Return the spec of the attempt's group, with the allocated number of trainers."""
        trainers = self.allocation.trainers if self.allocation is not None else 0
        return self.spec.group.with_trainers(trainers) if trainers else self.spec.group

    @property
    def as_allocated(self) -> "Job":
        """Return the job for its backend: its spec has the allocated number of trainers."""
        group = self.allocated_group
        return self if group is self.spec.group else replace(self, spec=replace(self.spec, group=group))

    @property
    def machine_of_ranks(self) -> tuple[str, ...]:
        """Return the machine of each rank of the attempt, in the order of ranks; empty if none is chosen."""
        nodes = self.allocation.nodes if self.allocation is not None else ()
        group = self.allocated_group
        if len(nodes) != group.size:
            return ()
        counts = {"": group.trainers_count, **{r: n for r, n in group.roles.items() if r in group.others}}
        of_role, start = {}, 0
        for role, count in counts.items():
            of_role[role] = iter(nodes[start : start + count])
            start += count
        return tuple(next(of_role[role if role in group.others else ""]) for role in group.role_of_ranks)

    def admitted(self, at: datetime, allocation: Allocation | None = None) -> "Job":
        """Return the job in state LAUNCHING, at the start of its next attempt."""
        fresh = replace(
            self,
            attempt=self.attempt + 1,
            started_at=None,
            ranks=(),
            progress=None,
            allocation=allocation,
            history=self._with_last_save,
        )
        return fresh._moved(JobState.LAUNCHING, at, until=_later(at, self.spec.deadlines.start))

    @property
    def _with_last_save(self) -> tuple[Move, ...]:
        """The history, with the checkpoints of the last attempt in its last entry.

        They are copied from the progress, which the next attempt is about to replace.
        """
        if self.progress is None or self.progress.saved is None:
            return self.history
        progress = self.progress
        last = replace(self.history[-1], saved=progress.saved, saves=progress.saves.few())
        return (*self.history[:-1], last)

    def running(self, at: datetime) -> "Job":
        """Return the job in state RUNNING, with its master running since `at`."""
        moved = self._moved(JobState.RUNNING, at, until=_later(at, self.spec.deadlines.run))
        return replace(moved, started_at=at)

    def observed(self, ranks: tuple[RankStatus, ...], program: str = "") -> "Job":
        """Return the job with the observed state of its ranks, and with `program` unless it is empty.

        Observations of a group of another size are ignored. A later STOPPED does not replace the observed end
        of a rank. Otherwise, a kill of the service during the stop of a group would lose such ends: ranks
        that are already removed look STOPPED, even if they ended earlier.
        """
        if len(ranks) != self.instances:
            return self
        current = (r if self._is_newer(r) else self.ranks[r.rank] for r in ranks)
        return replace(self, ranks=tuple(current), program=program or self.program)

    def _is_newer(self, rank: RankStatus) -> bool:
        known = self.ranks[rank.rank] if rank.rank < len(self.ranks) else None
        if known is None or rank.restarts != known.restarts:
            return rank.restarts >= self.restarts_of(rank.rank)
        return rank.phase is not Phase.STOPPED or not known.phase.has_ended

    @property
    def is_gated(self) -> bool:
        """Return whether the attempt's group waits in the cluster's own queue."""
        return self.state is JobState.LAUNCHING and any(rank.is_gated for rank in self.ranks)

    @property
    def gate_note(self) -> str:
        """Return the message of the cluster's own queue about the waiting group; "" if there is none."""
        return next((rank.note for rank in self.ranks if rank.is_gated and rank.note), "")

    def with_gate_deadline(self, at: datetime) -> "Job":
        """Return the job with a new deadline after its wait in the cluster's own queue has begun or ended.

        This wait is a part of the job's time in the queue. The deadline to start counts from the end of the
        wait.
        """
        if not self.is_gated:
            return replace(self, due_at=_later(at, self.spec.deadlines.start))
        queued = (move.at for move in reversed(self.history) if move.state is JobState.QUEUED)
        return replace(self, due_at=_later(next(queued, self.submitted_at), self.spec.deadlines.queue))

    def noting(self, note: str) -> "Job":
        """Return the job with a note that says why it waits in its state."""
        return replace(self, history=(*self.history[:-1], replace(self.history[-1], note=note)))

    @property
    def waits_for(self) -> str:
        """Return why the job's launch waits; "" if it does not wait, or the reason is unknown."""
        return self.history[-1].note if self.state is JobState.LAUNCHING and not self.was_launched else ""

    def restarts_of(self, rank: int) -> int:
        """Return how many restarts of the rank were decided in this attempt."""
        return self.ranks[rank].restarts if rank < len(self.ranks) else 0

    def restarting(self, rank: int, why: Diagnosis, at: datetime) -> "Job":
        """Return the job with one more restart of a rank. Observations of earlier starts no longer count.

        The diagnosis enters the history without its detail, since there may be many restarts.
        """
        note = f"Restarting: {why.summary}"
        again = RankStatus(rank, Phase.PENDING, note=note, restarts=self.restarts_of(rank) + 1)
        ranks = (*self.ranks[:rank], again, *self.ranks[rank + 1 :])
        move = Move(self.state, at, self.attempt, replace(why, rank=rank, detail=""))
        restarts = [each for each in self.history if each.is_restart]
        dropped = restarts[0] if len(restarts) >= _MAX_RESTARTS_IN_MOVES else None
        history = (*(each for each in self.history if each is not dropped), move)
        return replace(self, ranks=ranks, history=history)

    def decided(self, ending: Ending) -> "Job":
        """Return the job with this decided ending.

        Raises IllegalMove if TRANSITIONS lacks the move. Also raises it if an ending was decided before, with
        three exceptions.

        A cancel replaces the decision to make another attempt. A failure replaces a success, since a worker
        may fail between the success of the master and its own end. An ending of another kind replaces an
        interruption, since the attempt may still end by itself. In each case, the new ending keeps the
        preemption of the old one.
        """
        before = self.ending.state if self.ending is not None else None
        overruled = (
            (before is JobState.BACKOFF and ending.state is JobState.CANCELLED)
            or (before is JobState.SUCCEEDED and ending.state in (JobState.FAILED, JobState.BACKOFF))
            or (before is JobState.QUEUED and ending.state is not JobState.QUEUED)
        )
        if (self.ending is not None and not overruled) or ending.state not in TRANSITIONS[self.state]:
            raise IllegalMove(self.id, self.state, ending.state)
        history = self.history
        if self.ending is not None:
            ending = replace(ending, preemption=self.ending.preemption)
        if self.ending is not None and before is JobState.BACKOFF:  # the history keeps the overruled failure
            history += (self._move(self.ending.state, self.ending.decided_at, self.ending.diagnosis),)
        return replace(self, ending=ending, due_at=None, history=history)

    def failed(self, diagnosis: Diagnosis, at: datetime) -> "Job":
        """Return the job with this failure as the decided ending of its attempt.

        The ending also says whether another attempt follows.
        """
        return self.decided(self.failure(diagnosis, at))

    def failure(self, diagnosis: Diagnosis, at: datetime) -> Ending:
        """Return the ending of an attempt that has failed with this diagnosis.

        The ending also says whether another attempt follows.
        """
        early = self._early_failures
        uncounted = self._interruptions + min(early, _MOST_UNCOUNTED)
        again = self.spec.retry.allows(self.attempt - uncounted, diagnosis) or (
            diagnosis.category in _OF_NO_ATTEMPT and early < _MOST_UNCOUNTED
        )
        return Ending(JobState.BACKOFF if again else JobState.FAILED, at, diagnosis)

    def preempted(self, preemption: Preemption, at: datetime) -> "Job":
        """Return the job with the decision to stop its attempt, and to queue the job again.

        Raises IllegalMove as `decided` does.
        """
        return self.decided(Ending(JobState.QUEUED, at, preemption=preemption))

    def evicted(self, eviction: Eviction, at: datetime) -> "Job":
        """Return the job with the decision to stop its whole group, since the engine stops a part of it.

        After MOST_EVICTIONS evictions, the decision is a failure.
        """
        if self.evictions < MOST_EVICTIONS:
            return self.decided(Ending(JobState.QUEUED, at, eviction=eviction))
        return self.failed(
            Diagnosis(
                category=Category.EVICTED,
                summary=f"The job was evicted more than {MOST_EVICTIONS} times.",
                resolution="Find out what removes the job's instances, and submit it again.",
                detail=eviction.sentence(),
                retryable=True,
                rank=eviction.rank,
            ),
            at,
        )

    @property
    def counted_attempts(self) -> int:
        """Return how many attempts the job has made, at least 1. Interrupted attempts do not count."""
        return max(1, self.attempt - self._interruptions)

    @property
    def _early_failures(self) -> int:
        """The number of attempts that failed before they began to run (_OF_NO_ATTEMPT)."""
        return sum(
            move.state is JobState.BACKOFF
            and move.diagnosis is not None
            and move.diagnosis.category in _OF_NO_ATTEMPT
            for move in self.history
        )

    def ended(self, ending: Ending, at: datetime) -> "Job":
        """Return the job after its end, or after the end of its attempt. Call this when the group is gone.

        Ranks whose end was not observed become STOPPED.
        """
        ranks = tuple(
            r if r.phase.has_ended else RankStatus(r.rank, Phase.STOPPED, restarts=r.restarts)
            for r in self.ranks
        )
        if ending.state is JobState.BACKOFF:
            until = at + self.spec.retry.delay_after(self.counted_attempts)
            return replace(
                self._moved(ending.state, at, ending.diagnosis, until=until), ending=None, ranks=ranks
            )
        if ending.state is JobState.QUEUED:
            again = self.queued_again(at)
            move = replace(again.history[-1], preemption=ending.preemption, eviction=ending.eviction)
            return replace(again, ending=None, ranks=ranks, history=(*again.history[:-1], move))
        moved = self._moved(ending.state, at, ending.diagnosis)
        return replace(moved, ending=ending, finished_at=at, ranks=ranks)

    @property
    def longest_wait(self) -> timedelta | None:
        """Return how long the job may stay in its state before it is due; None: there is no limit."""
        deadlines = self.spec.deadlines
        return {
            JobState.QUEUED: deadlines.queue,
            JobState.LAUNCHING: deadlines.queue if self.is_gated else deadlines.start,
            JobState.RUNNING: deadlines.run,
            JobState.BACKOFF: self.spec.retry.delay_after(self.counted_attempts),
        }.get(self.state)

    def due_in_time(self, now: datetime) -> "Job":
        """Return the job with `due_at` limited to its longest wait from now.

        If the clock was set back, the stored time is too late.
        """
        latest = _later(now, self.longest_wait)
        if self.due_at is None or latest is None or self.due_at <= latest:
            return self
        return replace(self, due_at=latest)

    def queued_again(self, at: datetime) -> "Job":
        """Return the job in state QUEUED, after its backoff, a preemption or an eviction."""
        fresh = replace(self, allocation=None)
        return fresh._moved(JobState.QUEUED, at, until=_later(at, self.spec.deadlines.queue))

    def _moved(
        self, state: JobState, at: datetime, why: Diagnosis | None = None, *, until: datetime | None = None
    ) -> "Job":
        if state not in TRANSITIONS[self.state]:
            raise IllegalMove(self.id, self.state, state)
        return replace(self, state=state, due_at=until, history=(*self.history, self._move(state, at, why)))

    def _move(self, state: JobState, at: datetime, why: Diagnosis | None) -> Move:
        # Only the end of the detail is kept: otherwise a job with many attempts would grow large.
        return Move(
            state, at, self.attempt, replace(why, detail=why.detail[-_DETAIL_IN_MOVES:]) if why else None
        )


def new_job(job_id: int, spec: JobSpec, at: datetime, tags: tuple[str, ...] = ()) -> Job:
    """Return a job that has just been submitted, for a store to record."""
    return Job(
        id=job_id,
        version=1,
        spec=spec,
        state=JobState.QUEUED,
        submitted_at=at,
        due_at=_later(at, spec.deadlines.queue),
        history=(Move(JobState.QUEUED, at, 0),),
        tags=tags,
    )


def _later(at: datetime, duration: timedelta | None) -> datetime | None:
    return None if duration is None else at + duration


def why_again(job: Job) -> str:
    """Return why a queued job was interrupted before; "" if it was not, or if it is not queued.

    The text is for members of the job's project.
    """
    waits = job.state is JobState.QUEUED and job.history
    return job.history[-1].sentence(job.spec.project) if waits else ""
