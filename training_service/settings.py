"""Every knob of the service: grouped, typed, bounded, documented.

Values come from flags, else the environment (TRAINING_SERVICE_GROUP__NAME), else a TOML file, else the
defaults below, which need no configuration at all.
"""

import os
import re
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from job_tracker.catalog import (
    Algorithm,
    Dataset,
    JobPolicy,
    KubernetesRecipe,
    Parameter,
    PodOptions,
    PodPolicy,
    ProcessRecipe,
)
from job_tracker.catalog.job_policy import categories
from job_tracker.catalog.pod_policy import ALLOWED_BY_DEFAULT, PodOptionName
from job_tracker.catalog.syntax import KeyPrefix, LabelValue, Namespace, Resources
from job_tracker.diagnosis import Category
from job_tracker.errors import InvalidField
from job_tracker.policies import LONGEST, MOST_ATTEMPTS, Deadlines, RetryPolicy

_LAST_PORT = 65535
ENVIRONMENT_PREFIX = "TRAINING_SERVICE_"


def _seconds(value: Any) -> Any:
    # The environment and the command line know text only.
    return float(value) if isinstance(value, str) and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value) else value


Duration = Annotated[timedelta, BeforeValidator(_seconds)]
"""ISO 8601, such as PT30S or P30D, or a number of seconds."""


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ServerSettings(_Group):
    """The gRPC server."""

    address: str = Field(
        default="127.0.0.1:51001",
        pattern=r"^(\[[0-9a-fA-F:.]+\]|[^:\s]+):\d{1,5}$",
        description="where to listen; port 0 takes a free one",
    )

    @field_validator("address")
    @classmethod
    def _port_exists(cls, address: str) -> str:
        if int(address.rpartition(":")[2]) > _LAST_PORT:
            raise ValueError(f"there are ports up to {_LAST_PORT} only")
        return address

    shutdown_seconds: float = Field(
        default=5, ge=0, le=300, description="how long calls may still run after the order to stop"
    )
    max_message_bytes: int = Field(default=16 << 20, ge=1 << 16, le=1 << 28)


def _default_data_dir() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "training-service"


class StorageSettings(_Group):
    """Where things are kept."""

    data_dir: Path = Field(
        default_factory=_default_data_dir, description="the job store, and the files of running processes"
    )
    uri: str | None = Field(
        default=None,
        min_length=1,
        description="fsspec URI of datasets, models and checkpoints; default: `storage` in data_dir",
    )

    @property
    def root(self) -> str:
        """The URI of datasets, models and checkpoints."""
        return (self.uri or str(self.data_dir.absolute() / "storage")).rstrip("/")


class StoreSettings(_Group):
    """Where jobs are recorded."""

    url: SecretStr | None = Field(
        default=None,
        description="a Redis server (redis://, rediss://, unix://), which several services may share; "
        "none: a file in storage.data_dir",
    )
    prefix: str = Field(
        default="training-service",
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="of all keys in Redis; services with the same one share their jobs",
    )
    answer_seconds: float = Field(
        default=5, ge=0.1, le=60, description="how long Redis may take to answer before a call fails"
    )
    lease_seconds: float = Field(
        default=5,
        ge=1,
        le=60,
        description="how long the leading replica may be silent before another one leads",
    )

    @field_validator("url")
    @classmethod
    def _url_is_of_redis(cls, url: SecretStr | None) -> SecretStr | None:
        hint = "give it as redis://HOST:PORT/0, rediss://… for TLS, or unix://PATH"
        try:
            parts = urlsplit(url.get_secret_value() if url else "redis://host")
            _ = parts.port  # raises for one that is no number
        except ValueError:
            raise ValueError(hint) from None  # its own message may show the password
        if parts.scheme not in ("redis", "rediss", "unix"):
            raise ValueError(hint)
        return url


class ReportSettings(_Group):
    """What training processes tell the service."""

    address: str | None = Field(
        default=None,
        pattern=r"^(\[[0-9a-fA-F:.]+\]|[^:\s]+):\d{1,5}$",
        description="where training processes reach this service (HOST:PORT); none: they cannot call it, and "
        "report by what they print; processes on this machine need none",
    )


class SchedulingSettings(_Group):
    """Which jobs run, and how many."""

    capacity: int = Field(default=8, ge=1, le=1_000_000, description="instances that may run at once")
    max_queued: int = Field(default=1_000_000, ge=1, description="jobs that may wait; more are refused")


class JobSettings(_Group):
    """How jobs end, and what becomes of them then."""

    stop_grace: Duration = Field(
        default=timedelta(seconds=10),
        ge=timedelta(0),
        le=timedelta(hours=1),
        description="how long a process may take to end after SIGTERM, before SIGKILL",
    )
    finish_grace: Duration = Field(
        default=timedelta(seconds=30),
        ge=timedelta(0),
        le=timedelta(hours=24),
        description="how long workers may take to end by themselves once the master has succeeded",
    )
    keep_finished: Duration = Field(
        default=timedelta(days=30),
        ge=timedelta(0),
        le=timedelta(days=36_500),
        description="how long ended jobs and their logs are kept (ISO 8601, such as P30D, or seconds)",
    )
    keep_failed_group: Duration = Field(
        default=timedelta(0),
        ge=timedelta(0),
        le=timedelta(days=365),
        description="how long what is left of a failed job stays to be looked at: its pods that have ended, "
        "or the working folders of its processes; 0: not at all",
    )
    keep_succeeded_group: Duration = Field(
        default=timedelta(0),
        ge=timedelta(0),
        le=timedelta(days=365),
        description="the same, of a job that succeeded; nothing is kept of one that was cancelled",
    )


LongDuration = Annotated[Duration, Field(ge=timedelta(0), le=LONGEST)]


_RETRY = RetryPolicy()


def _known_categories(words: Sequence[str]) -> tuple[Category, ...]:
    try:
        return categories("retry_on", words)
    except InvalidField as error:
        raise ValueError(str(error)) from error


class RetrySettings(_Group):
    """When a failed attempt is followed by another; a request may say otherwise for its job."""

    max_attempts: int = Field(
        default=3, ge=1, le=MOST_ATTEMPTS, description="how often a job's group may be started in all"
    )
    backoff: LongDuration = Field(
        default=_RETRY.backoff,
        description="the wait before the second attempt; it doubles with each further one",
    )
    max_backoff: LongDuration = Field(default=_RETRY.max_backoff, description="the longest such wait")
    retry_on: Annotated[tuple[str, ...], AfterValidator(_known_categories)] = Field(
        default=(),
        description="categories of diagnoses that are worth another attempt, besides those that are so by "
        'nature (lost nodes and the like); "any" is every failure',
    )

    @model_validator(mode="after")
    def _backoffs_are_in_order(self) -> "RetrySettings":
        if self.backoff > self.max_backoff:
            raise ValueError(f"backoff {self.backoff} is more than max_backoff {self.max_backoff}")
        return self


class DeadlineSettings(_Group):
    """How long a job may be in a state before it fails; none: for ever. A request may say otherwise."""

    queue: LongDuration | None = Field(default=None, description="to wait in the queue, each time")
    start: LongDuration | None = Field(
        default=timedelta(hours=1), description="to be launched until its master runs, for each attempt"
    )
    run: LongDuration | None = Field(default=None, description="to run, for each attempt")


class ProcessSettings(_Group):
    """The process backend."""

    path: str = Field(
        default=f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}",
        description="PATH of the processes; it begins with the folder of the service's own python",
    )
    inherit: tuple[str, ...] = Field(
        default=("LANG", "LC_ALL", "TZ", "CUDA_VISIBLE_DEVICES"),
        description="variables of the service's environment that processes get; no others are passed on",
    )
    secret_environment: dict[str, SecretStr] = Field(
        default={}, description="variables for every process that are never shown, as of credentials"
    )
    first_port: int = Field(default=20000, ge=1024, le=65535, description="ports for MASTER_PORT: from …")
    last_port: int = Field(default=29999, ge=1024, le=65535, description="… to")

    @model_validator(mode="after")
    def _ports_are_in_order(self) -> "ProcessSettings":
        if self.last_port < self.first_port:
            raise ValueError(f"last_port {self.last_port} is below first_port {self.first_port}")
        return self


class KubernetesSettings(_Group):
    """The Kubernetes backend."""

    kubeconfig: Path | None = Field(
        default=None, description="none: the cluster that the service runs in, else what kubectl would use"
    )
    context: str | None = Field(
        default=None, min_length=1, description="of the kubeconfig; none: its current one"
    )
    namespace: Namespace = Field(default="default", description="where the pods are")
    instance: LabelValue = Field(
        default="training-service",
        min_length=1,
        description="tells this service's pods from those of others in the namespace",
    )
    master_port: int = Field(
        default=12356, ge=1024, le=65535, description="MASTER_PORT; each pod has its own address"
    )
    image_pull_grace: Duration = Field(
        default=timedelta(seconds=60),
        ge=timedelta(0),
        le=timedelta(hours=1),
        description="how long an image that cannot be pulled, or a container that cannot be made, may take "
        "to mend itself",
    )
    lost_node_grace: Duration = Field(
        default=timedelta(minutes=5),
        ge=timedelta(0),
        le=timedelta(days=1),
        description="how long a node may be silent before its jobs fail",
    )
    pod: PodOptions = Field(
        default=PodOptions(), description="options of all pods; those of an algorithm are laid over them"
    )
    allowed_request_options: frozenset[PodOptionName] = Field(
        default=ALLOWED_BY_DEFAULT, description="which options of its pods a request may set"
    )
    allowed_key_prefixes: tuple[KeyPrefix, ...] = Field(
        default=(), description="prefixes that keys of labels and annotations in a request may have"
    )
    max_resources: Resources = Field(
        default={}, description="the most that a request may ask for, for each instance"
    )

    @property
    def pod_policy(self) -> PodPolicy:
        """What a request may set of its pods."""
        return PodPolicy(
            allowed=frozenset(self.allowed_request_options),
            max_resources=self.max_resources,
            allowed_key_prefixes=self.allowed_key_prefixes,
        )


class MetricsSettings(_Group):
    """Prometheus metrics over HTTP."""

    port: int | None = Field(default=None, ge=0, le=65535, description="none: no metrics; 0: a free port")
    address: str = "127.0.0.1"


class LoggingSettings(_Group):
    """The service's own log, on standard error."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    format: Literal["console", "json"] = "console"


def _default_algorithms() -> dict[str, Algorithm]:
    return {
        "intent-classification": Algorithm(
            description="Classifies short texts: a bag of embeddings and a fully connected layer (PyTorch)",
            parameters={
                "EPOCHS": Parameter(type="int", default="15", minimum=1, maximum=10_000),
                "LR": Parameter(type="float", default="4", exclusive_minimum=0, maximum=1000),
                "BATCH_SIZE": Parameter(type="int", default="64", minimum=1, maximum=1 << 16),
                "FC_SIZE": Parameter(type="int", default="128", minimum=1, maximum=1 << 16),
                "SEED": Parameter(type="int", default="1", minimum=0, maximum=(1 << 31) - 1),
            },
            process=ProcessRecipe(command=("python", "-m", "intent_classification.train")),
            kubernetes=KubernetesRecipe(
                image="intent-classification:0.1.0", command=("python", "-m", "intent_classification.train")
            ),
        )
    }


class Settings(BaseSettings):
    """All of it."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        env_prefix=ENVIRONMENT_PREFIX,
        env_nested_delimiter="__",
        # Names of algorithms and the like are keys below these, and case matters there.
        case_sensitive=False,
    )

    backend: Literal["process", "kubernetes", "fake"] = Field(
        default="process", description="where groups run; fake only pretends, to try clients out"
    )
    server: ServerSettings = ServerSettings()
    storage: StorageSettings = Field(default_factory=StorageSettings)
    store: StoreSettings = StoreSettings()
    reports: ReportSettings = ReportSettings()
    scheduling: SchedulingSettings = SchedulingSettings()
    jobs: JobSettings = JobSettings()
    retry: RetrySettings = RetrySettings()
    deadlines: DeadlineSettings = DeadlineSettings()
    process: ProcessSettings = ProcessSettings()
    kubernetes: KubernetesSettings = KubernetesSettings()
    metrics: MetricsSettings = MetricsSettings()
    logging: LoggingSettings = LoggingSettings()
    algorithms: dict[str, Algorithm] = Field(
        default_factory=_default_algorithms,
        description="what may be trained; given, it replaces the built-in",
    )
    datasets: dict[str, Dataset] = Field(
        default={}, description='where datasets are, by id; "*" stands for any other id'
    )

    @property
    def job_policy(self) -> JobPolicy:
        """What holds for a job whose request does not say otherwise."""
        return JobPolicy(retry=RetryPolicy(**dict(self.retry)), deadlines=Deadlines(**dict(self.deadlines)))

    @property
    def all_datasets(self) -> dict[str, Dataset]:
        """The datasets that are configured; or, if none is, all that lie in the storage."""
        seed_layout = f"{self.storage.root}/versionedDatasets/{{dataset_id}}/{{version}}"
        return self.datasets or {"*": Dataset(uri=seed_layout)}

    @model_validator(mode="after")
    def _algorithms_run_on_the_backend(self) -> "Settings":
        for name, algorithm in self.algorithms.items():
            if self.backend == "process" and algorithm.process is None:
                raise ValueError(f"algorithms.{name} has no process.command, which the process backend needs")
            if self.backend == "kubernetes" and algorithm.kubernetes is None:
                raise ValueError(
                    f"algorithms.{name} has no kubernetes.image, which the Kubernetes backend needs"
                )
        return self

    @model_validator(mode="after")
    def _pod_options_fit_together(self) -> "Settings":
        for name, algorithm in self.algorithms.items():
            if algorithm.kubernetes is not None:
                try:
                    options = self.kubernetes.pod.merged(algorithm.kubernetes)
                except ValidationError as error:
                    reason = error.errors()[0]["msg"].removeprefix("Value error, ")
                    raise ValueError(f"algorithms.{name}.kubernetes over kubernetes.pod: {reason}") from error
                if options.nproc_per_node > 1 and not algorithm.kubernetes.command:
                    raise ValueError(
                        f"algorithms.{name}.kubernetes has no command, which torchrun is to start, as "
                        "kubernetes.pod.nproc_per_node is more than 1"
                    )
        return self

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what loading.py hands over, which has put the sources together."""
        return (init_settings,)
