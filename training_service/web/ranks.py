"""The ranks of a job's current or last attempt, for people: the ones with problems first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from job_tracker.domain.group import Phase, RankStatus
from job_tracker.domain.job import Job
from job_tracker.domain.pace import RankPace

MOST_SHOWN: Final = 200
_FIRST: Final = {Phase.FAILED: 0, Phase.PENDING: 1, Phase.RUNNING: 2, Phase.STOPPED: 3, Phase.SUCCEEDED: 4}


@dataclass(frozen=True, slots=True)
class RankRow:
    """A rank with its role, machine and pace."""

    status: RankStatus
    role: str
    node: str
    pace: RankPace | None
    """The pace of one process of the rank; see `_paces`. None: the rank reports no pace."""

    @property
    def is_slow(self) -> bool:
        """Return whether the rank holds up the others."""
        return self.pace is not None and self.pace.slowness > 0


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks that the page shows, and the number of all ranks in each phase."""

    rows: Sequence[RankRow]
    phases: Mapping[Phase, int]
    hidden: int


def ranks_of(job: Job) -> Ranks:
    """Return the job's ranks that the page shows."""
    group = job.allocated_group
    roles = group.role_of_ranks
    nodes = job.allocation.nodes if job.allocation else ()
    paces = _paces(job)
    rows = [
        RankRow(
            status,
            roles[status.rank] if status.rank < len(roles) else "",
            nodes[status.rank] if status.rank < len(nodes) else "",
            paces.get(status.rank),
        )
        for status in job.ranks
    ]
    rows.sort(key=lambda row: (_FIRST[row.status.phase], not row.is_slow, row.status.rank))
    counts = {phase: number for phase in Phase if (number := sum(r.phase is phase for r in job.ranks))}
    return Ranks(rows[:MOST_SHOWN], counts, max(0, len(rows) - MOST_SHOWN))


def _paces(job: Job) -> Mapping[int, RankPace]:
    """Return the pace of each rank that reports one, by the number of the rank.

    If a rank has several processes, its pace is that of the process with the fewest steps; among equals, of
    the slowest one.
    """
    processes = job.allocated_group.trainers.processes
    found: dict[int, RankPace] = {}
    for pace in job.progress.ranks if job.progress else ():
        rank = pace.process // processes
        known = found.get(rank)
        if known is None or (pace.step or 0, -pace.slowness) < (known.step or 0, -known.slowness):
            found[rank] = pace
    return found
