"""The environment variables that the service sets for training code."""

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from job_tracker.domain.job import Job

FREE_PARAMETERS = "TRAINING_PARAMETERS"
"""The variable with the parameters that an algorithm does not declare, as one JSON object."""

TOKENS = frozenset({"GROUP_TOKEN", "REPORT_TOKEN"})
"""The secret variables: they allow a process to report for an attempt, or to join its group."""

DEFAULTS = {
    "PYTHONUNBUFFERED": "1",  # so that logs appear at once
    "PYTHONFAULTHANDLER": "1",  # so that a crash in native code leaves a traceback
}
"""Variables that every process gets. The configuration can override them."""

ExtraEnvironment = Callable[[Job], Mapping[str, str]]
"""Returns further variables for the processes of a job's current attempt, such as the token for reports."""


def nothing_more(_job: Job) -> Mapping[str, str]:
    """Return no variables. This function is an ExtraEnvironment."""
    return {}


def job_environment(job: Job) -> dict[str, str]:
    """Return the environment variables with the job's parameters, ids, data and folders.

    All processes of the current attempt get them.
    """
    spec = job.spec
    return {
        **spec.environment,
        **(spec.program.environment if spec.program else {}),
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
