"""Specs and jobs as tests want them: complete, with what matters to the test changed."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from job_tracker.domain.diagnosis import Diagnosis
from job_tracker.domain.job import Job, JobSpec, JobState

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def spec(parameters: Mapping[str, str] | None = None, **changes: Any) -> JobSpec:
    """A spec for one instance of algorithm "program"."""
    sent = dict(parameters or {})
    values: dict[str, Any] = {
        "algorithm": "program",
        "dataset_id": "1",
        "dataset_version": "v1",
        "name": "a-name",
        "model_name": "a-model",
        "parameters": sent,
        "environment": sent,
        "instances": 1,
        "data_uri": "/storage/versionedDatasets/1/v1",
        "model_root": "/storage/models/a-model",
        "checkpoint_root": "/storage/checkpoints",
    }
    return JobSpec(**{**values, **changes})


def failures(told: Job) -> list[tuple[int, Diagnosis]]:
    """Which attempts failed, by the job's story, and why."""
    return [(move.attempt, move.diagnosis) for move in told.moves if move.diagnosis]


def job(
    parameters: Mapping[str, str] | None = None,
    *,
    algorithm: str = "program",
    instances: int = 1,
    job_id: int = 1,
    attempt: int = 1,
    state: JobState = JobState.LAUNCHING,
) -> Job:
    """A job in its first attempt's launch."""
    wanted = spec(parameters, algorithm=algorithm, instances=instances)
    return job_of(wanted, job_id=job_id, attempt=attempt, state=state)


def job_of(
    wanted: JobSpec, *, job_id: int = 1, attempt: int = 1, state: JobState = JobState.LAUNCHING
) -> Job:
    """A job of this spec in its first attempt's launch."""
    return Job(id=job_id, version=1, spec=wanted, state=state, submitted_at=NOON, attempt=attempt)
