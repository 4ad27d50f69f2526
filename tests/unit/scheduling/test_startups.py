"""Learned startup times of attempts: from the job's own attempts, or else from attempts of its algorithm."""

from dataclasses import replace
from datetime import timedelta

from job_tracker.domain.job import Job, new_job
from job_tracker.domain.progress import Progress
from job_tracker.scheduling.startups import Startups
from tests.support.jobs import NOON, spec


def running(job_id: int, *, master: float, first_step: float | None = None, algorithm: str = "a") -> Job:
    """Return a job that was admitted at noon, with seconds until its master ran and its first step."""
    job = new_job(job_id, spec(algorithm=algorithm), NOON).admitted(NOON)
    job = job.running(NOON + timedelta(seconds=master))
    at = None if first_step is None else NOON + timedelta(seconds=first_step)
    return replace(job, progress=Progress(step=1, first_step_at=at))


def test_a_job_has_the_time_of_its_own_last_attempt() -> None:
    startups = Startups()
    for other in range(2, 12):
        startups.learn(running(other, master=1, first_step=100))
    own = running(1, master=1, first_step=30)
    startups.learn(own)
    assert startups.usual(own) == 30
    again = replace(own, attempt=2, progress=Progress(step=9, first_step_at=NOON + timedelta(seconds=50)))
    startups.learn(again)
    assert startups.usual(again) == 50


def test_another_job_has_the_usual_time_of_its_algorithm() -> None:
    startups = Startups()
    for other, seconds in enumerate((10, 20, 90), start=2):
        startups.learn(running(other, master=1, first_step=seconds))
        startups.learn(running(other, master=1, first_step=seconds))  # each attempt counts once
    assert startups.usual(running(1, master=5)) == 20
    assert startups.usual(running(1, master=5, algorithm="b")) == 5, "of this algorithm nothing is known"


def test_a_job_without_any_attempt_takes_no_time() -> None:
    assert Startups().usual(new_job(1, spec(), NOON)) == 0.0
    assert Startups().usual(new_job(1, spec(), NOON).admitted(NOON)) == 0.0


def test_a_job_that_has_ended_is_forgotten() -> None:
    startups = Startups()
    startups.learn(running(1, master=1, first_step=30))
    startups.forget(1)
    assert startups.usual(running(1, master=4)) == 4
