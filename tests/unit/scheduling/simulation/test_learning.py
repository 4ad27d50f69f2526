"""Learned durations in a simulation, and how good the expected waits are."""

import random

from job_tracker.scheduling.simulation.cluster import Cluster
from job_tracker.scheduling.simulation.learning import Estimates, LearnedDurations
from job_tracker.scheduling.simulation.peers import conservative
from job_tracker.scheduling.simulation.replay import replay
from job_tracker.scheduling.simulation.trace import TraceJob


def test_expected_waits_beat_the_last_waits_where_the_queue_says_more() -> None:
    chance = random.Random(2)
    jobs = [
        TraceJob(burst * 40_000 + chance.uniform(0, 100), chance.lognormvariate(6, 0.5), 1, algorithm="a")
        for burst in range(40)
        for _ in range(chance.choice([3, 30, 90]))
    ]
    estimates = Estimates()
    replay(jobs, conservative, Cluster.of(4), LearnedDurations(), estimates)
    judged = estimates.judgement()
    assert judged.jobs > 1000
    assert 0.8 <= judged.before_high <= 0.99
    assert judged.ratio < 0.7


def test_without_waits_there_is_nothing_to_judge() -> None:
    estimates = Estimates()
    replay([TraceJob(0, 1, 1)], conservative, Cluster.of(4), LearnedDurations(), estimates)
    assert estimates.judgement().jobs == 0
    assert estimates.judgement().ratio == 1


def test_a_job_is_expected_to_run_as_long_as_earlier_ones_of_its_kind() -> None:
    learned = LearnedDurations()
    job = TraceJob(0, 7, 2, "q", "a")
    assert learned.expected(job) is None
    for _ in range(10):
        learned.ended(job)
    found = learned.expected(job)
    assert found is not None
    assert found.median == 7
