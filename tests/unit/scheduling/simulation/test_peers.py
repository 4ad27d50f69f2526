"""The policies for comparison: strict FIFO, EASY and conservative backfill, on paper and on real traces."""

import os
import random
from pathlib import Path

import pytest

from job_tracker.scheduling.simulation import trace, workload
from job_tracker.scheduling.simulation.cluster import Cluster
from job_tracker.scheduling.simulation.durations import UnknownDurations
from job_tracker.scheduling.simulation.metrics import Summary, summary
from job_tracker.scheduling.simulation.peers import FreeOverTime, conservative, easy, fifo
from job_tracker.scheduling.simulation.record import Record
from job_tracker.scheduling.simulation.replay import DAY, Policy, replay
from job_tracker.scheduling.simulation.trace import TraceJob

TRACES = Path(os.environ.get("SCHEDULING_TRACES", "no-such-folder"))


def starts(policy: Policy, *jobs: TraceJob, capacity: int = 4) -> list[float | None]:
    return [record.started_at for record in replay(jobs, policy, Cluster.of(capacity))]


WIDE = (TraceJob(0, 100, 3), TraceJob(1, 50, 4), TraceJob(2, 10, 1), TraceJob(3, 200, 1))
"""One runs, one needs everything, one fits before it, one would delay it."""


def test_fifo_lets_no_job_pass() -> None:
    assert starts(fifo, *WIDE) == [0, 100, 150, 150]


@pytest.mark.parametrize("policy", [easy, conservative])
def test_backfill_starts_what_delays_no_reservation(policy: Policy) -> None:
    assert starts(policy, *WIDE) == [0, 100, 2, 150]


def test_only_conservative_backfill_protects_the_second_waiting_job() -> None:
    jobs = (TraceJob(0, 10, 3), TraceJob(1, 100, 2), TraceJob(2, 30, 4), TraceJob(3, 300, 1))
    assert starts(easy, *jobs)[2:] == [303, 3]
    assert starts(conservative, *jobs)[2:] == [110, 140]


@pytest.mark.parametrize("policy", [fifo, easy, conservative])
def test_a_job_larger_than_the_cluster_is_refused(policy: Policy) -> None:
    records = replay([TraceJob(0, 1, 5), TraceJob(0, 1, 4)], policy, Cluster.of(4))
    assert records[0].started_at is None
    assert records[0].refused == "The job needs 5 instances, but the largest flavor has 4."
    assert records[1].started_at == 0


def test_jobs_of_unknown_duration_are_taken_to_run_for_ever() -> None:
    records = replay(WIDE, easy, Cluster.of(4), UnknownDurations())
    assert [record.started_at for record in records] == [0, 212, 2, 12]


def test_the_free_instances_over_time_are_those_of_a_plain_count() -> None:
    chance = random.Random(3)
    for _ in range(200):
        free, taken = FreeOverTime(0, 8), [8] * 60
        for _ in range(15):
            size, duration = chance.randint(1, 8), chance.randint(1, 6)
            start = free.earliest(size, duration)
            plain = next(at for at in range(60) if all(count >= size for count in taken[at : at + duration]))
            assert start == plain
            if plain + duration >= 50:
                break
            free.take(start, start + duration, size)
            for at in range(plain, plain + duration):
                taken[at] -= size


@pytest.mark.parametrize("policy", [fifo, easy, conservative])
def test_with_exact_durations_every_first_promise_is_kept(policy: Policy) -> None:
    chance = random.Random(5)
    jobs = [
        TraceJob(chance.randint(0, 20_000), chance.randint(1, 600), chance.choice([1, 1, 1, 2, 4, 8]))
        for _ in range(400)
    ]
    records = replay(jobs, policy, Cluster.of(8))
    found = summary(records, {"instances": 8})
    assert (found.kept, found.unstarted) == (found.promised, 0)
    assert_capacity_is_kept(records, 8)


def assert_capacity_is_kept(records: list[Record], capacity: int) -> None:
    moves = [(record.started_at, record.job.instances) for record in records if record.started_at is not None]
    moves += [(record.ended_at, -record.job.instances) for record in records]
    used = 0
    for _, change in sorted(moves):  # the ends of a moment come first
        used += change
        assert 0 <= used <= capacity


SMALL = Path(__file__).parents[3] / "support" / "traces" / "small.csv"


@pytest.mark.parametrize(
    ("policy", "utilisation", "waiting"),
    [(fifo, 0.589662, 8989.65), (easy, 0.814958, 1252.03), (conservative, 0.814958, 1366.16)],
)
def test_the_small_trace_always_gives_the_same_figures(
    policy: Policy, utilisation: float, waiting: float
) -> None:
    jobs = workload.scaled(workload.prepared(trace.read(SMALL)), capacity=8, load=0.95)
    found = summary(replay(jobs, policy, Cluster.of(8)), {"instances": 8})
    assert found.utilisation == pytest.approx(utilisation, rel=1e-5)
    assert found.waits.mean == pytest.approx(waiting, rel=1e-5)


PUBLISHED = [
    ("openb", fifo, 0.801, 148_589, 106_935),
    ("openb", easy, 0.843, 73_147, 74_303),
    ("openb", conservative, 0.843, 73_397, 74_198),
    ("philly", fifo, 0.917, 1_764_789, 1_471_198),
    ("philly", easy, 0.921, 1_657_073, 1_665_789),
    ("philly", conservative, 0.921, 1_628_373, 1_440_383),
]


@pytest.mark.skipif(not TRACES.is_dir(), reason="SCHEDULING_TRACES is not a folder with the traces")
@pytest.mark.parametrize(("name", "policy", "utilisation", "every", "largest"), PUBLISHED)
def test_peers_come_out_as_published(
    name: str, policy: Policy, utilisation: float, every: int, largest: int
) -> None:
    capacity, load, since = (16, 0.9, 1e7) if name == "openb" else (24, 0.95, 0.0)
    jobs = workload.prepared(trace.read(TRACES / f"{name}.csv.gz"), since=since, longest=3 * DAY)
    found: Summary = summary(
        replay(workload.scaled(jobs, capacity, load), policy, Cluster.of(capacity)), {"instances": capacity}
    )
    assert found.utilisation == pytest.approx(utilisation, abs=0.0006)
    assert found.waits.mean == pytest.approx(every, rel=0.001)
    assert found.largest.mean == pytest.approx(largest, rel=0.001)
