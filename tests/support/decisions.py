"""Observations of a group, and the tracker's decisions about them."""

from datetime import timedelta

from job_tracker.backends.base import Observation, RankObservation
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.group import Phase, RankStatus
from job_tracker.domain.job import Job
from job_tracker.tracking.decisions import next_step
from tests.support.jobs import NOON

WHY = Diagnosis(category=Category.CRASHED, summary="It broke.", resolution="Mend it.", rank=1)
P, R, S, F, X = Phase.PENDING, Phase.RUNNING, Phase.SUCCEEDED, Phase.FAILED, Phase.STOPPED


def seen(*phases: Phase) -> Observation:
    return Observation(
        tuple(RankObservation(RankStatus(n, p), WHY if p is F else None) for n, p in enumerate(phases))
    )


def step(
    current: Job,
    observation: Observation | None,
    *,
    launched: bool = True,
    after: float = 0,
    stall: Diagnosis | None = None,
    restarts_ranks: bool = True,
) -> object:
    return next_step(
        current,
        observation,
        launched=launched,
        now=NOON + timedelta(seconds=after),
        finish_grace=timedelta(seconds=30),
        stall=stall,
        restarts_ranks=restarts_ranks,
    )
