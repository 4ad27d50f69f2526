"""The contract with training code: environment variables in, exit code out."""

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from job_tracker.model import Job

# Names that the service, or a launcher that it starts, sets: nobody else may.
_SERVICE_NAMES = frozenset(
    (
        *("JOB_ID", "JOB_ATTEMPT", "ALGORITHM_NAME", "MODEL_NAME", "MODEL_URI", "MODEL_BUCKET"),
        *("CHECKPOINT_URI", "GROUP_TOKEN", "METADATA_STORE_SERVER", "WORLD_SIZE", "RANK", "LOCAL_RANK"),
        *("LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE"),
        *("MASTER_ADDR", "MASTER_PORT", "TF_CONFIG", "HOME", "TMPDIR"),
    )
)
_SERVICE_PREFIXES = (
    "TRAINING_",
    "REPORT_",
    "PET_",
    "TORCHELASTIC_",
    "JAX_",
    "HOROVOD_",
    "OMPI_",
    "PMI_",
    "MPI_",
    "PMIX_",
    "PRTE_",
)

# And names that change how a process is loaded, found or trusted. A user parameter may have none of
# them: it would otherwise be a way to run other code than the algorithm's.
_RESERVED_NAMES = _SERVICE_NAMES.union(
    (
        *("PATH", "USER", "LOGNAME", "SHELL", "PWD"),
        *("OLDPWD", "IFS", "ENV", "TEMP", "TMP", "HOSTNAME", "CDPATH", "CUDA_VISIBLE_DEVICES"),
        *("NODE_OPTIONS", "JAVA_TOOL_OPTIONS", "RUBYOPT", "GCONV_PATH", "LOCPATH", "NLSPATH"),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy"),
        *("no_proxy", "_", "CHECKPOINT_WEIGHTS_ONLY"),
    )
)
_RESERVED_PREFIXES = (
    *_SERVICE_PREFIXES,
    *("LD_", "DYLD_", "PYTHON", "PERL", "BASH_", "GLIBC_", "MALLOC_", "SSL_", "GIT_"),
    *("AWS_", "GOOGLE_", "AZURE_", "MINIO_", "KUBERNETES_", "NVIDIA_"),
)


def is_reserved(name: str) -> bool:
    """Whether a user parameter may not have this name."""
    return name in _RESERVED_NAMES or name.startswith(_RESERVED_PREFIXES)


def is_set_by_service(name: str) -> bool:
    """Whether configuration may not give this name to processes either: the service does."""
    return name in _SERVICE_NAMES or name.startswith(_SERVICE_PREFIXES)


Telling = Callable[[Job], Mapping[str, str]]
"""More that the processes of a job's current attempt are told, as how to report."""


def nothing_more(_job: Job) -> Mapping[str, str]:
    """See Telling."""
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
