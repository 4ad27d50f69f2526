"""The reported positions of the processes of each running attempt, in the memory of the leader."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from job_tracker.common.clock import AwakeClock, utc_now
from job_tracker.domain.group import Phase
from job_tracker.domain.job import Job
from job_tracker.domain.pace import Activity
from job_tracker.reports.collectives import Collective, collectives_of

FLOOR_SECONDS = 30.0
"""Without a deadline for progress, the limit on the seconds without progress is at least this number."""
MOST_OF_STACKS = 8 * 1024
"""The largest number of characters of the stacks of a process. Stacks are kept in memory, at most until the
attempt has ended.
"""
_REPORTS_A_SECOND = 500
_SHORTEST_PAUSE, _LONGEST_PAUSE = 1.0, 15.0
_AFTER_DEADLINE = 0.05
_LEAST_DELAY = 4.0
"""A report may be late by this many seconds, or by half the pause between reports if that is longer."""
_LONGEST_SECONDS = 1e9
_LARGEST_STEP = 10**15

Attempt = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """The report of one process about itself. All values except `process` are checked; see `rank_report`."""

    process: int
    step: int | None = None
    longest_step: float = 0.0
    step_seconds: float = 0.0
    waiting_seconds: float = 0.0
    waiting: bool = False
    activity: Activity = Activity.TRAINING
    place: int = 0
    stacks: str = ""
    """Any text of at most MOST_OF_STACKS characters."""
    collectives: tuple[Collective, ...] = ()
    moved_ago: float = 0.0
    """The seconds since the process last made a step, changed its activity or reported something."""
    still_for: float | None = None
    """The seconds for which the main thread has been at the same place in the code; None: unknown."""


class _Sent(Protocol):
    """A message of a process. Its values are unchecked."""

    rank: int
    step: int
    longest_step: float
    step_seconds: float
    waiting_seconds: float
    waiting: bool
    phase: str
    place: int
    stacks: str
    moved_ago: float
    still_for: float

    @property
    def collectives(self) -> Sequence[Any]: ...


def rank_report(sent: _Sent, *, has_step: bool, has_still_for: bool = False) -> RankReport:
    """Return the report in a message. In place of values that are not allowed, it has None, 0 or TRAINING.

    `process` is not checked here, since its bound depends on the attempt. `has_step` and `has_still_for` say
    whether the message has the fields `step` and `still_for`.
    """
    try:
        activity = Activity(sent.phase or Activity.TRAINING)
    except ValueError:
        activity = Activity.TRAINING
    return RankReport(
        process=sent.rank,
        step=sent.step if has_step and 0 <= sent.step <= _LARGEST_STEP else None,
        longest_step=seconds_of(sent.longest_step),
        step_seconds=seconds_of(sent.step_seconds),
        waiting_seconds=seconds_of(sent.waiting_seconds),
        waiting=sent.waiting,
        activity=activity,
        place=sent.place,
        stacks=sent.stacks[:MOST_OF_STACKS],
        collectives=collectives_of(sent.collectives),
        moved_ago=seconds_of(sent.moved_ago),
        still_for=seconds_of(sent.still_for) if has_still_for else None,
    )


def seconds_of(value: Any) -> float:
    """Return a number of seconds that a process has sent; 0 if the number is not allowed."""
    return value if math.isfinite(value) and 0 <= value <= _LONGEST_SECONDS else 0.0


@dataclass(slots=True)
class Signs:
    """The signs of life of one process.

    Times in seconds are measured by RankBoard.clock. `heard` is the time when the last report arrived.
    """

    last: RankReport
    heard: float
    heard_at: datetime
    moved: float
    """The time when the step or the activity of the process last changed."""
    active: float
    """The time when the main thread was last seen to move to another place in the code."""
    stacks: str = ""
    """The stacks of the process, sent after the service asked for them."""
    collectives: tuple[Collective, ...] = ()
    """The latest collective operation of the process in each process group, sent with the stacks."""
    slow_since: datetime | None = None
    slowness: float = 0.0
    """The median time of the process's own work on its last steps, divided by the median of all processes. 0:
    unknown.
    """
    slow_stacks: str = ""
    """The stacks of the process soon after it became slow."""


@dataclass(frozen=True, slots=True)
class Outside:
    """The position of a process in its program, as another process has found it (tracking/inspecting.py).

    The strings are printable, but a hostile job may forge them.
    """

    standing: str
    """A part of a sentence that says what the process is doing, or why this is unknown."""
    stacks: str = ""
    is_stopped: bool = False
    """Whether a signal or a debugger has stopped the process."""


@dataclass(slots=True)
class Watched:
    """The known facts about the processes of one attempt."""

    size: int
    """The number of processes: the instances of all roles if each has one process, or else the training
    processes."""
    per_rank: int
    """The number of training processes of each instance."""
    moved: float
    """The time from which the time without progress is measured.

    It is the time of the latest progress, metric or artifact, or of a later event that begins the measurement
    anew. Such an event is the start of the watch, the restart or loss of a rank, a call of
    `ProgressWatch.forgive`, or, without a deadline, the first report after a silence of all processes.
    """
    deadline: float | None = None
    """The job's deadline for progress, in seconds."""
    signs: dict[int, Signs] = field(default_factory=dict)
    expected: Mapping[int, int | None] = field(default_factory=dict)
    """The last known step of each process that had reported to an earlier leader."""
    over: Collection[int] = ()
    """The processes that had made all their steps, as an earlier leader has recorded."""
    lost: set[int] = field(default_factory=set)
    """The processes of lost ranks. The other processes continue without them."""
    machines: Sequence[str] = ()
    """The machine of each rank; "" if it is unknown.

    The sequence may be shorter than the group. Then the machines of the last ranks are unknown, too.
    """
    restarts: dict[int, int] = field(default_factory=dict)
    """The number of restarts of each rank that was restarted."""
    anew: set[int] = field(default_factory=set)
    """The processes of restarted ranks, until their first steps are measured."""
    has_reported: bool = False
    """Whether a report of progress, a metric or an artifact has come."""
    has_all_steps: bool = False
    """Whether the attempt has reported all steps that it has announced."""
    due: float = 0.0
    """The time by which all expected reports should have come, even if some are a little late. 0: there was
    no report yet."""
    asked: float | None = None
    """The time when the processes were asked for their stacks. None: they are not asked."""
    outside: Mapping[int, Outside] = field(default_factory=dict)
    """The positions of processes that do not answer, once they were inspected from outside."""
    still_since: float = math.inf
    """The time at which the standstill began. It is set when the processes are asked for their stacks."""
    stalls_at: float = math.inf
    """The time from which the attempt may count as stalled, if no process moves until then.

    `watching.py` sets it.
    """
    restless: bool = False
    """Whether no process has moved for a while, so that reports should come often."""

    @property
    def processes(self) -> set[int]:
        """The numbers of the processes that are not lost."""
        return set(range(self.size)) - self.lost

    def machine_of(self, process: int) -> str:
        """Return the machine of a process, or "" if it is unknown."""
        rank = process // self.per_rank
        return self.machines[rank] if rank < len(self.machines) else ""

    def stacks_of(self, process: int) -> str:
        """Return the stacks that a process has sent; if it has sent none, the stacks seen from outside."""
        sent = self.signs[process].stacks if process in self.signs else ""
        return sent or (self.outside[process].stacks if process in self.outside else "")

    @property
    def calm_pause(self) -> float:
        """Seconds between two reports of a process while the attempt makes progress."""
        return min(_LONGEST_PAUSE, max(_SHORTEST_PAUSE, self.quiet_after))

    @property
    def quiet_after(self) -> float:
        """Seconds without progress after which reports should come often."""
        return (self.deadline or FLOOR_SECONDS) / 2

    @property
    def pause(self) -> float:
        """Seconds between two reports of a process, if there are few processes (see `RankBoard.pause_of`)."""
        return _SHORTEST_PAUSE if self.restless or self.asked is not None else self.calm_pause


@dataclass(frozen=True, slots=True)
class Orders:
    """The answer to the report of a process."""

    pause: float
    """The seconds until the next report of the process."""
    wants_stacks: bool = False
    reconnect: bool = False
    """Whether the process should connect again, to find the replica that watches."""


class RankBoard:
    """The positions of the processes of all running attempts.

    Only the leader watches. The board is empty when a replica begins to lead, and is filled by the next
    reports. Its size is bounded by the number of processes of the running jobs.
    """

    def __init__(
        self, clock: Callable[[], float] | None = None, now: Callable[[], datetime] = utc_now
    ) -> None:
        self.clock = clock or AwakeClock()
        self._now = now
        self._watched: dict[Attempt, Watched] = {}
        self._leads = False

    def open(self) -> None:
        """Begin to watch, without any earlier observations."""
        self._watched.clear()
        self._leads = True

    def close(self) -> None:
        """End the watch, since another replica may lead now."""
        self._watched.clear()
        self._leads = False

    def follow(self, job: Job, machines: Sequence[str] = ()) -> None:
        """Watch the job's attempt, with the job's current deadline. See Watched for `machines`."""
        progress = job.spec.deadlines.progress
        watched = self._watched.get((job.id, job.attempt))
        if watched is None:
            group = job.allocated_group
            trainers = group.trainers.processes
            size = group.training_processes if trainers > 1 else group.size
            watched = self._watched[job.id, job.attempt] = Watched(size, trainers, self.clock())
            known = job.progress.ranks if job.progress else ()
            watched.expected = {pace.process: pace.step for pace in known}
            watched.has_all_steps = bool(job.progress and job.progress.has_all_steps)
            watched.over = {pace.process for pace in known if pace.activity is Activity.DONE}
        watched.machines = machines
        watched.deadline = progress.total_seconds() if progress else None
        for rank in job.ranks:
            if job.spec.group.max_lost and rank.phase is Phase.FAILED:
                self._leave_out(watched, rank.rank)
            if rank.restarts != watched.restarts.get(rank.rank, 0):
                watched.restarts[rank.rank] = rank.restarts
                self._expect_anew(watched, rank.rank)

    def _expect_anew(self, watched: Watched, rank: int) -> None:
        """Forget the reports of a restarted rank, and begin anew to count the time without progress.

        The other ranks wait while this rank starts again.
        """
        watched.moved = self.clock()
        for process in _processes_of(watched, rank):
            watched.anew.add(process)
            watched.signs.pop(process, None)

    def _leave_out(self, watched: Watched, rank: int) -> None:
        """Forget the processes of a lost rank, and begin anew to count the time without progress.

        The other ranks may need some time until they continue without the lost rank.
        """
        gone = set(_processes_of(watched, rank)) - watched.lost
        if not gone:
            return
        watched.moved = self.clock()
        watched.lost |= gone
        watched.anew -= gone
        watched.over = set(watched.over) - gone
        watched.expected = {each: step for each, step in watched.expected.items() if each not in gone}
        for process in gone:
            watched.signs.pop(process, None)

    def drop(self, attempt: Attempt) -> None:
        """Forget an attempt that has ended."""
        self._watched.pop(attempt, None)

    def watched(self) -> Iterable[tuple[Attempt, Watched]]:
        """Return the watched attempts."""
        return list(self._watched.items())

    def watches(self, attempt: Attempt) -> bool:
        """Return whether this board watches the attempt."""
        return attempt in self._watched

    def size_of(self, attempt: Attempt) -> int:
        """Return the number of processes of a watched attempt; 1 for other attempts."""
        watched = self._watched.get(attempt)
        return watched.size if watched else 1

    @property
    def processes(self) -> int:
        """The number of processes that have reported, in all watched attempts."""
        return sum(len(watched.signs) for watched in self._watched.values())

    def has_moved(self, attempt: Attempt, *, has_all_steps: bool = False, ago: float = 0.0) -> None:
        """Record that the attempt reported progress, a metric or an artifact, `ago` seconds ago.

        `has_all_steps` says whether all announced steps are done.
        """
        if watched := self._watched.get(attempt):
            watched.moved = max(watched.moved, self.clock() - ago)
            watched.has_reported = True
            watched.has_all_steps = has_all_steps

    def take(self, attempt: Attempt, report: RankReport) -> Orders:
        """Record the report of a process, and return the answer. Lost or unknown processes are ignored."""
        watched = self._watched.get(attempt)
        if watched is None:
            return Orders(_SHORTEST_PAUSE, reconnect=not self._leads)
        if not 0 <= report.process < watched.size or report.process in watched.lost:
            return Orders(_LONGEST_PAUSE)
        now = self.clock()
        known = watched.signs.get(report.process)
        if 0 < watched.due < now and watched.deadline is None:
            watched.moved = now  # all processes were suspended or cut off, so none could report progress
        if known is None:
            watched.signs[report.process] = Signs(report, now, self._now(), now, now)
        else:
            before, known.last = known.last, report
            has_moved = (report.step, report.activity) != (before.step, before.activity)
            if has_moved:
                known.moved = max(known.heard, now - report.moved_ago)
            if report.still_for is not None:
                known.active = max(known.active, now - report.still_for)
            elif has_moved or report.place != before.place:
                known.active = now
            known.heard, known.heard_at = now, self._now()
            if report.stacks and watched.asked is not None and not known.stacks:
                known.collectives = report.collectives
                known.stacks = _printable(report.stacks)
            elif report.stacks and known.slow_since is not None and not known.slow_stacks:
                known.slow_stacks = _printable(report.stacks)
        if report.longest_step > 0:
            watched.anew.discard(report.process)
        pause = self.pause_of(watched)
        if now < watched.stalls_at < now + pause and self.processes_pause <= _SHORTEST_PAUSE:
            # The next report then comes just after `stalls_at`, and its answer can ask for the stacks.
            pause = watched.stalls_at - now + _AFTER_DEADLINE
        watched.due = max(watched.due, now + pause + max(_LEAST_DELAY, pause / 2))
        return Orders(pause, wants_stacks=_wants_stacks(watched, watched.signs[report.process]))

    def pause_of(self, watched: Watched) -> float:
        """Return the seconds between two reports of a process of this attempt."""
        return max(watched.pause, self.processes_pause)

    @property
    def processes_pause(self) -> float:
        """The shortest pause with which all processes together stay within the allowed reports per second."""
        return self.processes / _REPORTS_A_SECOND


def _processes_of(watched: Watched, rank: int) -> range:
    """Return the processes of a rank."""
    first = rank * watched.per_rank
    return range(first, min(first + watched.per_rank, watched.size))


def _wants_stacks(watched: Watched, signs: Signs) -> bool:
    """Return whether a process is asked for its stacks.

    A process is asked if it is slow, or if the attempt stands still. Each answer to its reports asks for the
    stacks until they arrive. While the attempt stands still, a process that reports steps is not asked if it
    has moved since the standstill began.
    """
    if watched.asked is None:
        return signs.slow_since is not None and not signs.slow_stacks
    return not signs.stacks and (signs.last.step is None or signs.moved <= watched.still_since)


def _printable(stacks: str) -> str:
    return "".join(c for c in stacks if c.isprintable() or c == "\n") or "\n"
