"""The contract with training code: environment variables in, exit code out."""

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from job_tracker.domain.job import Job

FREE_PARAMETERS = "TRAINING_PARAMETERS"
"""The variable that holds, as one JSON object, the parameters that an algorithm does not declare."""

TOKENS = frozenset({"GROUP_TOKEN", "REPORT_TOKEN"})
"""The variables that are secret: who knows them may report for an attempt, or take part in its group."""

DEFAULTS = {
    "PYTHONUNBUFFERED": "1",  # so that logs can be followed
    "PYTHONFAULTHANDLER": "1",  # so that a crash in native code leaves a traceback
}
"""Variables of every process, unless configuration says otherwise."""

ExtraEnvironment = Callable[[Job], Mapping[str, str]]
"""More that the processes of a job's current attempt are told, as how to report."""


def nothing_more(_job: Job) -> Mapping[str, str]:
    """See ExtraEnvironment."""
    return {}


def job_environment(job: Job) -> dict[str, str]:
    """What every process of the job's current attempt is told, whatever its rank and framework."""
    spec = job.spec
    return {
        **spec.environment,
        **_bucket("TRAINING_DATA_BUCKET", "TRAINING_DATA_PATH", spec.data_uri),
        "JOB_ID": str(job.id),
        "JOB_ATTEMPT": str(job.attempt),
        "ALGORITHM_NAME": spec.algorithm,
        "TRAINING_DATASET_ID": spec.dataset_id,
        "TRAINING_DATASET_VERSION_HASH": spec.dataset_version,
        "TRAINING_DATA_URI": spec.data_uri,
        "MODEL_NAME": spec.model_name,
        "MODEL_URI": job.model_uri,
        "CHECKPOINT_URI": job.checkpoint_uri,
    }


def _bucket(bucket_name: str, path_name: str, uri: str) -> Mapping[str, str]:
    parts = urlsplit(uri)
    if parts.scheme in ("", "file"):
        return {}
    return {bucket_name: parts.netloc, path_name: parts.path.lstrip("/")}
