"""Running jobs and reserved starts are bars over time."""

import math
from datetime import timedelta

from job_tracker.domain.allocation import Allocation
from job_tracker.scheduling.model import Expected, Gang, Part, Promise
from job_tracker.scheduling.options import PlannerOptions
from job_tracker.scheduling.queue_snapshot import QueueSnapshot, SeenJob
from tests.support.jobs import NOON
from training_service.web.gantt import MOST_LANES, Bar, gantt_of

NOW = NOON.timestamp()
HOUR = 3600.0


def seen(
    job_id: int, *, running: float | None = None, promised: float | None = None, length: float | None = None
) -> SeenJob:
    expected = Expected(median=length, high=2 * length) if length is not None else None
    return SeenJob(
        gang=Gang(job_id=job_id, parts=(Part(2, {"instances": 1}),), expected=expected),
        project="vision",
        name=f"job-{job_id}",
        submitted_at=NOON - timedelta(days=1),
        admitted_at=NOON - timedelta(seconds=running) if running is not None else None,
        allocation=Allocation() if running is not None else None,
        promise=Promise(NOW + promised, "default") if promised is not None else None,
    )


def snapshot(*jobs: SeenJob, omitted: int = 0) -> QueueSnapshot:
    return QueueSnapshot(
        taken_at=NOON, flavors=(), queues={}, usage={}, jobs=jobs, omitted=omitted, options=PlannerOptions()
    )


def test_running_jobs_come_first_and_then_starts_in_their_order() -> None:
    found = gantt_of(
        snapshot(
            seen(5, promised=HOUR, length=HOUR),
            seen(1, running=HOUR, length=2 * HOUR),
            seen(4, promised=60, length=60),
        )
    )
    assert [lane.job.gang.job_id for lane in found.lanes] == [1, 4, 5]
    assert [[bar.kind for bar in lane.bars] for lane in found.lanes] == [
        ["running", "expected"], ["reserved"], ["reserved"]
    ]  # fmt: skip
    running = found.lanes[0].bars
    assert running[0] == Bar(0, 20, "running")
    assert running[0].left + running[0].width == running[1].left == found.now
    assert found.lanes[0].instances == 2
    assert found.lanes[0].text == "runs for 1 h, and about 1 h more"
    assert found.lanes[2].text == "starts in 1 h, and then for about 1 h"


def test_an_end_that_is_not_known_or_over_is_open() -> None:
    found = gantt_of(snapshot(seen(1, running=60), seen(2, running=HOUR, length=60)))
    for lane in found.lanes:
        assert lane.bars[-1].kind == "unknown"
        assert lane.bars[-1].left + lane.bars[-1].width == 100
        assert lane.text.endswith("its end is not known")


def test_waiting_jobs_without_a_start_are_counted() -> None:
    found = gantt_of(
        snapshot(seen(1), seen(2, promised=math.inf), seen(3, promised=60, length=60), omitted=4)
    )
    assert [lane.job.gang.job_id for lane in found.lanes] == [3]
    assert found.without == 6


def test_there_are_not_too_many_lanes_and_an_empty_queue_has_none() -> None:
    found = gantt_of(snapshot(*(seen(number, running=60, length=HOUR) for number in range(1, 100))))
    assert (len(found.lanes), found.hidden) == (MOST_LANES, 99 - MOST_LANES)
    assert gantt_of(snapshot()).lanes == []
