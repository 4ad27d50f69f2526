"""Experience from earlier jobs: how long they run, and how long they wait."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol

from job_tracker.domain.job import Job, JobState, Move
from job_tracker.domain.job_spec import JobSpec
from job_tracker.scheduling.durations import Kind, RunTimes
from job_tracker.scheduling.model import Expected, Promise
from job_tracker.scheduling.waits import Wait, WaitTimes
from job_tracker.store.jobs import JobFilter, Listing

MOST_HISTORY: Final = 2_000
"""The largest number of ended jobs from which `read` learns run times.

These are the jobs that were submitted last.
"""
_PAGE: Final = 500
_ENDED: Final = frozenset(state for state in JobState if state.is_terminal)
_PROGRAM_WORDS: Final = 3


class _Store(Protocol):
    async def list_jobs(self, where: JobFilter, *, limit: int, before: int | None = None) -> Listing: ...


class _Board(Protocol):
    """The part of a Board (see board.py) from which waits are learned."""

    def waits(self, job_id: int) -> bool: ...

    def runs(self, job_id: int) -> bool: ...

    def ahead_of_new(self, now: float) -> Mapping[int, float]: ...


class Experience:
    """The run times and the wait times of earlier jobs."""

    def __init__(self) -> None:
        self.runs = RunTimes()
        self.waits = WaitTimes()

    def expected(self, spec: JobSpec) -> Expected | None:
        """Return the expected run time of an attempt; None if it is unknown.

        The estimate comes from learned run times, and from the expected time and the deadline in the spec.
        """
        given, deadline = spec.expected, spec.deadlines.run
        return self.runs.expected(
            kind_of(spec),
            given=given.total_seconds() if given else None,
            deadline=deadline.total_seconds() if deadline else None,
        )

    def ended(self, job: Job) -> None:
        """Learn the run time of the job's last attempt, which has ended.

        If the attempt never ran, or was preempted, resized or evicted, learn nothing.
        """
        last = [move for move in job.history if move.attempt == job.attempt]
        self._add(job, list(run_times(last)))

    async def read(self, store: _Store) -> None:
        """Learn the run times of the MOST_HISTORY ended jobs that were submitted last.

        The cost does not grow with the number of all ended jobs.
        """
        found: list[Job] = []
        before: int | None = None
        where = JobFilter(states=_ENDED)
        while len(found) < MOST_HISTORY:
            page = await store.list_jobs(where, limit=_PAGE, before=before)
            found += page.jobs
            if not page.has_more:
                break
            before = page.jobs[-1].id
        self.runs = RunTimes()
        for job in reversed(found[:MOST_HISTORY]):
            self._add(job, list(run_times(job.history)))

    def learn_waits(self, board: _Board, promises: Mapping[int, Promise], now: float) -> Mapping[int, Wait]:
        """Learn which jobs have begun to wait, and which have started, since the last pass.

        Return the expected waits of the jobs that have begun to wait.
        """
        started = []
        for job_id in self.waits.waiting():
            if board.runs(job_id):
                started.append(job_id)
            elif not board.waits(job_id):
                self.waits.forget(job_id)
        return self.waits.observe(now, started, board.ahead_of_new(now), promises)

    def _add(self, job: Job, seconds: list[float]) -> None:
        kind = kind_of(job.spec)
        for each in seconds:
            self.runs.add(kind, each)


def kind_of(spec: JobSpec) -> Kind:
    """Return the kind of a job's attempts: project, algorithm or program, and size."""
    algorithm = spec.algorithm
    if spec.program is not None:
        # All programs have the same algorithm name, so the project and the beginning of the command are added
        # to this name. Run times of other projects' programs are not used, even if the command is the same.
        command = spec.group.trainers.command[:_PROGRAM_WORDS]
        algorithm = " ".join((algorithm, spec.project, *command))
    return Kind(spec.project, algorithm, spec.instances)


def run_times(history: Iterable[Move]) -> Iterator[float]:
    """Yield the seconds for which the attempts in the history of a job held their machines.

    An attempt counts only if it has ended and its master has run. Preempted, resized or evicted attempts do
    not count.
    """
    admitted: Move | None = None
    has_run = False
    for move in history:
        if move.is_restart:
            continue
        if move.state is JobState.LAUNCHING:
            admitted, has_run = move, False
        elif move.state is JobState.RUNNING:
            has_run = True
        elif admitted is not None:
            if has_run and not move.is_uncounted:
                yield max(0.0, (move.at - admitted.at).total_seconds())
            admitted = None
