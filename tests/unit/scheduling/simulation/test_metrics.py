"""The figures of a simulation."""

import math

import pytest

from job_tracker.scheduling.model import Allocation
from job_tracker.scheduling.simulation.attempts import Span
from job_tracker.scheduling.simulation.metrics import Waits, is_kept, jain, over_time, summary
from job_tracker.scheduling.simulation.record import Record
from job_tracker.scheduling.simulation.trace import Begun, TraceJob

FOUR = {"instances": 4}


def ran(job: TraceJob, started_at: float, held: dict[str, int] | None = None, **rest: float) -> Record:
    span = Span(started_at, started_at + job.run, held or {"instances": job.instances})
    return Record(job, started_at, [span], is_done=True, first_promise=rest.get("first_promise"))


RECORDS = [
    ran(TraceJob(0, 100, 2, "a"), 0),
    ran(TraceJob(0, 100, 4, "b"), 100, first_promise=100),
    ran(TraceJob(10, 50, 2, "b"), 60, first_promise=50),
    Record(TraceJob(10, 50, 9, "b"), refused="too large"),
]


def test_the_summary_has_utilisation_waits_and_promises() -> None:
    found = summary(RECORDS, capacity=FOUR)
    assert found.utilisation == (200 + 400 + 100) / (4 * 200)
    assert found.waits == Waits(jobs=3, mean=50, median=50, high=100)
    assert found.by_size[2] == Waits(2, 25, 0, 50)
    assert found.by_queue["b"].mean == 75
    assert found.largest == found.by_size[4]
    assert (found.promised, found.kept, found.unstarted, found.end) == (2, 1, 1, 200)
    assert not is_kept(RECORDS[2])


def test_without_jobs_there_are_no_figures() -> None:
    found = summary([], capacity=FOUR)
    assert found.utilisation == 0
    assert math.isnan(found.largest.mean)
    assert over_time([], FOUR) == []


def test_shares_over_time_add_up_to_the_work() -> None:
    spans = over_time(RECORDS, capacity=FOUR, spans=7)
    assert sum(span.shares["b"] for span in spans) / 7 == pytest.approx(500 / 800)
    assert spans[0].index == pytest.approx(0.5)  # b waits while a runs
    assert spans[-1].index == 1


def test_weights_count_in_fairness() -> None:
    records = [
        ran(TraceJob(0, 100, 1, "a"), 0),
        ran(TraceJob(0, 100, 3, "b"), 0),
    ]
    (span,) = over_time(records, capacity=FOUR, spans=1, weights={"a": 1, "b": 3})
    assert span.index == pytest.approx(1)
    (span,) = over_time(records, capacity=FOUR, spans=1)
    assert span.index == pytest.approx(0.8)


def test_jains_index_is_one_for_equal_values() -> None:
    assert jain([2, 2, 2]) == 1
    assert jain([1, 0, 0, 0]) == 0.25
    assert jain([]) == 1


def test_work_before_the_beginning_does_not_count() -> None:
    running = ran(TraceJob(-50, 100, 2, begun=Begun(-50, Allocation())), -50)
    found = summary([running], FOUR)
    assert (found.end, found.utilisation, found.waits.jobs) == (50, 0.5, 0)
    assert [span.utilisation for span in over_time([running], FOUR, spans=2)] == [0.5, 0.5]


def test_the_resource_that_is_used_most_gives_utilisation_and_shares() -> None:
    records = [ran(TraceJob(0, 10, 1, "a"), 0, held={"instances": 1, "gpu": 8})]
    capacity = {"instances": 10, "gpu": 16}
    assert summary(records, capacity).by_resource == {"instances": 0.1, "gpu": 0.5}
    (span,) = over_time(records, capacity, spans=1)
    assert (span.shares, span.utilisation) == ({"a": 0.5}, 0.5)


def test_waits_are_summed_up_by_project() -> None:
    records = [
        ran(TraceJob(0, 1, 1, project="vision"), 4),
        ran(TraceJob(0, 1, 1, project="speech"), 8),
    ]
    found = summary(records, FOUR).by_project
    assert {name: waits.mean for name, waits in found.items()} == {"speech": 8, "vision": 4}
