"""Complete specs and jobs, of which a test changes only the fields that matter to it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter

from job_tracker.domain import naming
from job_tracker.domain.diagnosis import Diagnosis
from job_tracker.domain.group import GroupSpec, InstanceOptions
from job_tracker.domain.job import Job, JobState
from job_tracker.domain.job_spec import JobSpec
from job_tracker.domain.policies import Elastic

_OPTIONS = TypeAdapter(InstanceOptions)
NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def spec(
    parameters: Mapping[str, str] | None = None,
    *,
    instances: int = 1,
    roles: Mapping[str, int] | None = None,
    elastic: Elastic | None = None,
    ends_with_master: bool = False,
    pod_options: Mapping[str, Any] | None = None,
    **changes: Any,
) -> JobSpec:
    """Return a spec that is not yet resolved for a backend. By default, it is one instance of algorithm
    "program".
    """
    sent = dict(parameters or {})
    trainers = {naming.MASTER: 1, **({naming.WORKER: instances - 1} if instances > 1 else {})}
    values: dict[str, Any] = {
        "group": GroupSpec(roles=roles or trainers, elastic=elastic, ends_with_master=ends_with_master),
        "pod_options": _OPTIONS.validate_python(pod_options or {}),
        "algorithm": "program",
        "dataset_id": "1",
        "dataset_version": "v1",
        "name": "a-name",
        "model_name": "a-model",
        "parameters": sent,
        "environment": sent,
        "data_uri": "/storage/versionedDatasets/1/v1",
        "model_root": "/storage/models/a-model",
        "checkpoint_root": "/storage/checkpoints",
    }
    return JobSpec(**{**values, **changes})


def failures(job: Job) -> list[tuple[int, Diagnosis]]:
    """Return the failed attempts in the job's history, with their diagnoses."""
    return [(move.attempt, move.diagnosis) for move in job.history if move.diagnosis]


def job(
    parameters: Mapping[str, str] | None = None,
    *,
    algorithm: str = "program",
    instances: int = 1,
    job_id: int = 1,
    attempt: int = 1,
    state: JobState = JobState.LAUNCHING,
) -> Job:
    """Return a job of a spec with these values. By default, its first attempt is being launched."""
    wanted = spec(parameters, algorithm=algorithm, instances=instances)
    return job_of(wanted, job_id=job_id, attempt=attempt, state=state)


def job_of(
    wanted: JobSpec, *, job_id: int = 1, attempt: int = 1, state: JobState = JobState.LAUNCHING
) -> Job:
    """Return a job of this spec. By default, its first attempt is being launched."""
    return Job(id=job_id, version=1, spec=wanted, state=state, submitted_at=NOON, attempt=attempt)
