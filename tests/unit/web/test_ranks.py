"""The ranks of a job: those with problems first, and a bounded number of them."""

from dataclasses import replace

from job_tracker.domain.allocation import Allocation
from job_tracker.domain.group import Phase, RankStatus
from job_tracker.domain.job import JobState
from job_tracker.domain.pace import RankPace
from job_tracker.domain.progress import Progress
from tests.support.jobs import job
from training_service.web.ranks import MOST_SHOWN, ranks_of


def test_ranks_with_problems_come_first() -> None:
    phases = [Phase.SUCCEEDED, Phase.RUNNING, Phase.RUNNING, Phase.FAILED, Phase.PENDING]
    ranks = tuple(RankStatus(rank, phase) for rank, phase in enumerate(phases))
    slow = RankPace(2, step=7, slowness=3.0, step_seconds=0.5)
    progress = Progress(ranks=(RankPace(1, step=9), slow))
    shown = ranks_of(
        replace(
            job(instances=5, state=JobState.RUNNING),
            ranks=ranks,
            progress=progress,
            allocation=Allocation(nodes=("a", "b", "c", "d", "e")),
        )
    )
    assert [row.status.rank for row in shown.rows] == [3, 4, 2, 1, 0]
    assert shown.rows[2].pace is slow
    assert shown.rows[2].is_slow
    assert (shown.rows[2].node, shown.rows[2].role) == ("c", "worker")
    assert shown.phases == {Phase.PENDING: 1, Phase.RUNNING: 2, Phase.SUCCEEDED: 1, Phase.FAILED: 1}


def test_ten_thousand_ranks_are_counted_and_the_first_ones_shown() -> None:
    running = (RankStatus(rank, Phase.RUNNING) for rank in range(9_999))
    ranks = (*running, RankStatus(9_999, Phase.FAILED, exit_code=1))
    shown = ranks_of(replace(job(instances=10_000, state=JobState.RUNNING), ranks=ranks))
    assert len(shown.rows) == MOST_SHOWN
    assert shown.rows[0].status.rank == 9_999
    assert shown.hidden == 10_000 - MOST_SHOWN


def test_a_job_without_ranks_has_none() -> None:
    assert not ranks_of(job()).rows
