"""Judges learned durations by the quality of the expected waits that are computed from them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from job_tracker.scheduling.durations import Kind, RunTimes
from job_tracker.scheduling.model import Expected, Plan, Snapshot
from job_tracker.scheduling.simulation.metrics import quantile
from job_tracker.scheduling.simulation.trace import TraceJob
from job_tracker.scheduling.waits import LEAST, Wait, WaitTimes
from job_tracker.scheduling.work import ahead

JUDGED: Final = LEAST
"""The wait in seconds that a job must exceed to be judged."""
_LAST_WAITS: Final = 500


class LearnedDurations:
    """Knows only the run times of jobs that have ended."""

    def __init__(self) -> None:
        self._times = RunTimes()

    def expected(self, job: TraceJob) -> Expected | None:
        """Return quantiles of the run times of earlier jobs that are like this one.

        None: there are too few such jobs.
        """
        return self._times.expected(_kind(job))

    def ended(self, job: TraceJob) -> None:
        """Learn the run time of the job."""
        self._times.add(_kind(job), job.run)


def _kind(job: TraceJob) -> Kind:
    return Kind(job.queue, job.algorithm, job.instances)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The quality of expected waits, over the jobs that waited longer than JUDGED."""

    jobs: int
    before_high: float
    """The share of the judged jobs that waited at most as long as the P90 of their expected wait."""
    loss: float
    """The mean pinball loss of the expected P50 and P90, in seconds."""
    loss_of_last_waits: float
    """The mean pinball loss, in seconds, if the quantiles of the last 500 waits were the estimates.

    Both losses leave out the jobs that began to wait before any job had started.
    """

    @property
    def ratio(self) -> float:
        """The loss, divided by the loss of the last waits."""
        return self.loss / self.loss_of_last_waits if self.loss_of_last_waits else 1.0


@dataclass(slots=True)
class Estimates:
    """A watcher that estimates a job's wait when the job begins to wait, and later sees the real wait."""

    _times: WaitTimes = field(default_factory=WaitTimes)
    _begun: dict[int, tuple[float, Wait, Wait | None]] = field(default_factory=dict)
    _waits: list[float] = field(default_factory=list)
    _ended: list[tuple[float, Wait, Wait | None]] = field(default_factory=list)

    def passed(self, snapshot: Snapshot, now: float, submitted: Sequence[int], plan: Plan) -> None:
        """Learn from a plan, the snapshot after its decisions, and the jobs submitted since the last plan."""
        fresh = set(submitted)
        for admitted in plan.admitted:
            if (begun := self._begun.pop(admitted.job_id, None)) is not None:
                since, mine, by_last = begun
                self._waits.append(now - since)
                self._ended.append((now - since, mine, by_last))
            elif admitted.job_id in fresh:
                self._waits.append(0.0)
        last = sorted(self._waits[-_LAST_WAITS:])
        started = [admitted.job_id for admitted in plan.admitted]
        ahead_of = {job_id: each.seconds for job_id, each in ahead(snapshot, now, submitted).items()}
        promises = {each.job_id: each.promise for each in plan.reserved}
        for job_id, wait in self._times.observe(now, started, ahead_of, promises).items():
            by_last = Wait(quantile(last, 0.5), quantile(last, 0.9)) if last else None
            self._begun[job_id] = (now, wait, by_last)

    def judgement(self) -> Judgement:
        """Return the quality of the estimates, for the jobs that have started."""
        judged = [each for each in self._ended if each[0] > JUDGED]
        both = [(waited, mine, last) for waited, mine, last in judged if last is not None]
        return Judgement(
            jobs=len(judged),
            before_high=sum(waited <= mine.high for waited, mine, _ in judged) / max(1, len(judged)),
            loss=sum(_loss(waited, mine) for waited, mine, _ in both) / max(1, len(both)),
            loss_of_last_waits=sum(_loss(waited, last) for waited, _, last in both) / max(1, len(both)),
        )


def _loss(waited: float, expected: Wait) -> float:
    """Return the pinball loss of the expected P50 and P90 for a real wait (Koenker and Bassett, 1978)."""
    return sum(
        max(share * (waited - value), (share - 1) * (waited - value))
        for share, value in ((0.5, expected.median), (0.9, expected.high))
    )
