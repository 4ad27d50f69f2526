"""A job: its spec, its state and the moves between states."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from job_tracker.domain import naming
from job_tracker.domain.diagnosis import Diagnosis
from job_tracker.domain.errors import IllegalMove
from job_tracker.domain.group import GroupRef, GroupSpec, InstanceOptions, Phase, RankStatus
from job_tracker.domain.policies import Deadlines, RetryPolicy

_DETAIL_IN_MOVES = 1000  # characters
_MOST_RESTARTS_IN_MOVES = 100  # the newest


class JobState(StrEnum):
    """Where a job is in its life.

    A job is submitted into QUEUED and waits there until it is admitted under the capacity. Admission
    moves it to LAUNCHING, *before* the first call to the outside, while its group is being started.
    It is RUNNING from the moment that its master runs. It ends as SUCCEEDED when the master exits
    with 0, as FAILED when any rank fails or the group cannot be launched, and as CANCELLED when
    somebody asked for that first. A job that has ended never changes again.

    A failed attempt that its policy allows to be followed by another leads to BACKOFF instead, as soon
    as the group is gone; after a while the job is QUEUED again, at its old place.
    """

    QUEUED = "queued"
    LAUNCHING = "launching"
    RUNNING = "running"
    BACKOFF = "backoff"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended."""
        return not TRANSITIONS[self]

    @property
    def is_live(self) -> bool:
        """Whether the job has, or is about to have, a group outside."""
        return self in LIVE_STATES


TRANSITIONS: Mapping[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.LAUNCHING, JobState.FAILED, JobState.CANCELLED}),
    JobState.LAUNCHING: frozenset({JobState.RUNNING, JobState.BACKOFF, JobState.FAILED, JobState.CANCELLED}),
    JobState.RUNNING: frozenset({JobState.SUCCEEDED, JobState.BACKOFF, JobState.FAILED, JobState.CANCELLED}),
    JobState.BACKOFF: frozenset({JobState.QUEUED, JobState.CANCELLED}),
    JobState.SUCCEEDED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}

LIVE_STATES = frozenset({JobState.LAUNCHING, JobState.RUNNING})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What was asked for, checked and with every default filled in. It never changes."""

    group: GroupSpec
    """First, by which stored specs of before there were any are told apart."""
    algorithm: str
    dataset_id: str
    dataset_version: str
    name: str
    model_name: str
    parameters: Mapping[str, str]
    """The parameters as they were sent."""
    environment: Mapping[str, str]
    """The parameters as the processes get them: those sent, and the algorithm's defaults."""
    data_uri: str
    model_root: str
    checkpoint_root: str
    pod_options: InstanceOptions = InstanceOptions()  # noqa: RUF009  # it never changes
    """What the request sets of its instances, checked."""
    code_version: str = ""
    """Of the training code, as configured when the job was submitted."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    deadlines: Deadlines = field(default_factory=Deadlines)
    home: str = ""
    """PROJECT/STORE, below which the job's folders are; "" for jobs accepted before there was one."""

    @property
    def instances(self) -> int:
        """How many in all: the master, its workers, and those of other roles."""
        return self.group.size


@dataclass(frozen=True, slots=True)
class Ending:
    """A decided outcome whose group is still to be stopped. Written before the stopping starts.

    That of the job, or in state BACKOFF that of an attempt which another is to follow.
    """

    state: JobState
    decided_at: datetime
    diagnosis: Diagnosis | None = None
    at_once: bool = False
    """Whether workers that a succeeded master has left behind get no time to end by themselves."""
    has_model: bool | None = None
    """Whether a success has left files where its model belongs; None: that is not known."""


@dataclass(frozen=True, slots=True)
class Move:
    """A step of a job's history: into which state, when, in which attempt, and why if that was a failure.

    In state RUNNING (or LAUNCHING) with a diagnosis: a rank of an elastic group failed, and is started anew.
    """

    state: JobState
    at: datetime
    attempt: int
    diagnosis: Diagnosis | None = None
    note: str = ""
    """What it waited for in that state."""

    @property
    def is_restart(self) -> bool:
        """Whether it tells of a rank that is started anew, not of a new state."""
        return self.state in LIVE_STATES and self.diagnosis is not None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the training is, as the master last reported it. Metrics map a name to a finite number."""

    step: int = 0
    total_steps: int = 0
    epoch: int = 0
    total_epochs: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    reported_at: datetime | None = None
    speed: float = 0.0
    """Steps a second, smoothed; 0 while it is not known."""
    measured_at: datetime | None = None
    """When the speed was measured last, or begins to be."""
    measured_step: int = 0
    """The step at that time."""

    @property
    def seconds_left(self) -> float | None:
        """How long it will take at this speed; None while that is not known."""
        return max(0, self.total_steps - self.step) / self.speed if self.speed and self.total_steps else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One submitted job, at one version of its life. Changes make a new value; the store keeps the last."""

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
    """What ran in the last attempt: an image, with its digest where it is known, or a command."""
    due_at: datetime | None = None
    """When the job leaves its state, if nothing else happens: a deadline, or the end of a back-off."""
    history: tuple[Move, ...] = ()
    """From the submission on."""

    @property
    def group(self) -> GroupRef:
        """The group of the current attempt."""
        return self._group_of(self.attempt)

    @property
    def groups(self) -> list[GroupRef]:
        """The groups of all attempts so far."""
        return [self._group_of(attempt) for attempt in range(1, self.attempt + 1)]

    @property
    def diagnosis(self) -> Diagnosis | None:
        """Why the job failed, or is about to."""
        return self.ending.diagnosis if self.ending else None

    @property
    def has_model(self) -> bool | None:
        """Whether there were files at `model_uri` when the job succeeded; None: that is not known."""
        return self.ending.has_model if self.ending else None

    @property
    def last_failure(self) -> Diagnosis | None:
        """Why the job, or else the last of its attempts that did, failed."""
        reasons = (move.diagnosis for move in reversed(self.history) if move.diagnosis)
        return self.diagnosis or next(reasons, None)

    @property
    def folder(self) -> str:
        """The relative path of the job's folders: of its model, its checkpoints and its logs."""
        return naming.job_folder(self.spec.home, self.id)

    @property
    def model_uri(self) -> str:
        """The folder that the trained model is written to: each job has its own."""
        return f"{self.spec.model_root}/{self.folder}"

    @property
    def checkpoint_uri(self) -> str:
        """The folder of the job's checkpoints, shared by its attempts."""
        return f"{self.spec.checkpoint_root}/{self.folder}"

    @property
    def was_launched(self) -> bool:
        """Whether the launch of the current attempt is known to be complete.

        Its ranks are written down right after that, and never before.
        """
        return bool(self.ranks)

    def admitted(self, at: datetime) -> "Job":
        """The job at the start of its next attempt, of which nothing is known yet."""
        fresh = replace(self, attempt=self.attempt + 1, started_at=None, ranks=(), progress=None)
        return fresh._moved(JobState.LAUNCHING, at, until=_later(at, self.spec.deadlines.start))

    def running(self, at: datetime) -> "Job":
        """The job from the moment that its master runs."""
        moved = self._moved(JobState.RUNNING, at, until=_later(at, self.spec.deadlines.run))
        return replace(moved, started_at=at)

    def observed(self, ranks: tuple[RankStatus, ...], program: str = "") -> "Job":
        """The job with its ranks as they were last seen, and what they run if that is known.

        What is seen of a group of another size changes nothing. Nor does it that a rank is stopped whose
        end is known: it was put away by a service that was killed before it had put away the others.
        """
        if len(ranks) != self.spec.instances:
            return self
        current = (r if self._is_news(r) else self.ranks[r.rank] for r in ranks)
        return replace(self, ranks=tuple(current), program=program or self.program)

    def _is_news(self, rank: RankStatus) -> bool:
        known = self.ranks[rank.rank] if rank.rank < len(self.ranks) else None
        if known is None or rank.restarts != known.restarts:
            return rank.restarts >= self.restarts_of(rank.rank)
        return rank.phase is not Phase.STOPPED or not known.phase.has_ended

    def noting(self, note: str) -> "Job":
        """The job with what it waits for in its state."""
        return replace(self, history=(*self.history[:-1], replace(self.history[-1], note=note)))

    @property
    def waits_for(self) -> str:
        """What its launch waits for, if that is known."""
        return self.history[-1].note if self.state is JobState.LAUNCHING and not self.was_launched else ""

    def restarts_of(self, rank: int) -> int:
        """How often the rank is to be started anew in this attempt."""
        return self.ranks[rank].restarts if rank < len(self.ranks) else 0

    def restarting(self, rank: int, why: Diagnosis, at: datetime) -> "Job":
        """The job with one more start of a rank decided; what is seen of an earlier one counts no more.

        Its history tells of it, without the detail: there may be many.
        """
        note = f"It is started anew, because: {why.summary}"
        again = RankStatus(rank, Phase.PENDING, note=note, restarts=self.restarts_of(rank) + 1)
        ranks = (*self.ranks[:rank], again, *self.ranks[rank + 1 :])
        move = Move(self.state, at, self.attempt, replace(why, rank=rank, detail=""))
        told = [each for each in self.history if each.is_restart]
        dropped = told[0] if len(told) >= _MOST_RESTARTS_IN_MOVES else None
        history = (*(each for each in self.history if each is not dropped), move)
        return replace(self, ranks=ranks, history=history)

    def decided(self, ending: Ending) -> "Job":
        """The job with its outcome fixed.

        The first decision stands, and a later one is refused; but for a cancel that comes before
        another attempt.
        """
        failed = self.ending is not None and self.ending.state is JobState.BACKOFF
        overruled = failed and ending.state is JobState.CANCELLED
        if (self.ending is not None and not overruled) or ending.state not in TRANSITIONS[self.state]:
            raise IllegalMove(self.id, self.state, ending.state)
        history = self.history
        if self.ending is not None:  # what is overruled belongs to the history
            history += (self._move(self.ending.state, self.ending.decided_at, self.ending.diagnosis),)
        return replace(self, ending=ending, due_at=None, history=history)

    def failed(self, diagnosis: Diagnosis, at: datetime) -> "Job":
        """The job with the failure of its attempt decided, and whether another is to follow."""
        again = self.spec.retry.allows(self.attempt, diagnosis)
        return self.decided(Ending(JobState.BACKOFF if again else JobState.FAILED, at, diagnosis))

    def ended(self, ending: Ending, at: datetime) -> "Job":
        """The job after its end, or that of its attempt, when its group is gone.

        Ranks that were not seen to end were stopped.
        """
        ranks = tuple(
            r if r.phase.has_ended else RankStatus(r.rank, Phase.STOPPED, restarts=r.restarts)
            for r in self.ranks
        )
        if ending.state is JobState.BACKOFF:
            until = at + self.spec.retry.delay_after(self.attempt)
            return replace(
                self._moved(ending.state, at, ending.diagnosis, until=until), ending=None, ranks=ranks
            )
        moved = self._moved(ending.state, at, ending.diagnosis)
        return replace(moved, ending=ending, finished_at=at, ranks=ranks)

    @property
    def longest_wait(self) -> timedelta | None:
        """How long the job may be in its state before it is due; None: for ever."""
        deadlines = self.spec.deadlines
        return {
            JobState.QUEUED: deadlines.queue,
            JobState.LAUNCHING: deadlines.start,
            JobState.RUNNING: deadlines.run,
            JobState.BACKOFF: self.spec.retry.delay_after(max(1, self.attempt)),
        }.get(self.state)

    def due_in_time(self, now: datetime) -> "Job":
        """The job, due no later than its policy says counted from now, also if the clock was set back."""
        latest = _later(now, self.longest_wait)
        if self.due_at is None or latest is None or self.due_at <= latest:
            return self
        return replace(self, due_at=latest)

    def queued_again(self, at: datetime) -> "Job":
        """The job after its back-off."""
        return self._moved(JobState.QUEUED, at, until=_later(at, self.spec.deadlines.queue))

    def _group_of(self, attempt: int) -> GroupRef:
        name = naming.group_name(self.spec.algorithm, self.id, attempt)
        return GroupRef(name, self.id, attempt, self.spec.home)

    def _moved(
        self, state: JobState, at: datetime, why: Diagnosis | None = None, *, until: datetime | None = None
    ) -> "Job":
        if state not in TRANSITIONS[self.state]:
            raise IllegalMove(self.id, self.state, state)
        return replace(self, state=state, due_at=until, history=(*self.history, self._move(state, at, why)))

    def _move(self, state: JobState, at: datetime, why: Diagnosis | None) -> Move:
        # With the end of the detail only: a job that is tried often would grow large.
        return Move(
            state, at, self.attempt, replace(why, detail=why.detail[-_DETAIL_IN_MOVES:]) if why else None
        )


def new_job(job_id: int, spec: JobSpec, at: datetime) -> Job:
    """A job that has just been submitted, as a store records it."""
    return Job(
        id=job_id,
        version=1,
        spec=spec,
        state=JobState.QUEUED,
        submitted_at=at,
        due_at=_later(at, spec.deadlines.queue),
        history=(Move(JobState.QUEUED, at, 0),),
    )


def _later(at: datetime, duration: timedelta | None) -> datetime | None:
    return None if duration is None else at + duration
