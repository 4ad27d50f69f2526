"""The load of a simulation: times scaled, run times cut, jobs spread over queues."""

import pytest

from job_tracker.scheduling.model import Allocation
from job_tracker.scheduling.simulation import workload
from job_tracker.scheduling.simulation.trace import Begun, TraceError, TraceJob

JOBS = [TraceJob(100, 50, 1), TraceJob(200, 0, 2, priority=3), TraceJob(300, 500, 4)]


def test_early_jobs_are_left_out_and_run_times_are_cut() -> None:
    assert workload.prepared(JOBS, since=100, longest=60) == [TraceJob(0, 1, 2), TraceJob(100, 60, 4)]


def test_priorities_are_kept_if_they_are_wanted() -> None:
    assert [job.priority for job in workload.prepared(JOBS, priorities=True)] == [0, 3, 0]


def test_no_job_left_is_refused() -> None:
    with pytest.raises(TraceError, match="after 1000 s"):
        workload.prepared(JOBS, since=1000)


@pytest.mark.parametrize("load", [0.5, 0.9, 3.0])
def test_times_are_scaled_to_the_load(load: float) -> None:
    jobs = workload.prepared(JOBS)
    scaled = workload.scaled(jobs, capacity=8, load=load)
    assert workload.offered(scaled, 8) == pytest.approx(load)
    assert workload.work(scaled) == workload.work(jobs)


def test_queues_are_the_same_for_the_same_seed() -> None:
    jobs = [TraceJob(0, 1, 1)] * 1000
    queues = [job.queue for job in workload.queued(jobs, 4, seed=7)]
    assert queues == [job.queue for job in workload.queued(jobs, 4, seed=7)]
    assert queues != [job.queue for job in workload.queued(jobs, 4, seed=8)]
    assert all(200 < queues.count(f"q{place}") < 300 for place in range(1, 5))


def test_further_jobs_offer_the_wanted_work_and_are_the_same_for_the_same_seed() -> None:
    jobs = [TraceJob(-5, 100, 1, begun=Begun(-5, Allocation())), TraceJob(-3, 300, 4)]
    made = workload.continued(jobs, {"instances": 8}, load=0.5, seconds=1e6, seed=3)
    assert workload.work(made) / (8 * 1e6) == pytest.approx(0.5, rel=0.1)
    assert made == workload.continued(jobs, {"instances": 8}, load=0.5, seconds=1e6, seed=3)
    assert all(job.begun is None and 0 < job.submitted_at < 1e6 for job in made)


def test_too_many_further_jobs_are_refused() -> None:
    with pytest.raises(TraceError, match="would be about 800000 jobs; choose a lower load"):
        workload.continued([TraceJob(0, 1, 1)], {"instances": 8}, load=1, seconds=1e5, seed=0)
