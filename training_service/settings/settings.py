"""All settings, and what they must be to each other."""

from typing import Any, Literal

from pydantic import (
    Field,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from job_tracker.catalog import (
    Algorithm,
    ContainerOptions,
    Dataset,
    DockerRecipe,
    JobDefaults,
    KubernetesRecipe,
    PodOptions,
    RequestLimits,
)
from job_tracker.catalog.layers import overlay
from job_tracker.domain.policies import Deadlines, RetryPolicy
from training_service.settings.docker import DockerSettings
from training_service.settings.engines import KubernetesSettings, ProcessSettings
from training_service.settings.jobs import DeadlineSettings, JobSettings, RetrySettings, SchedulingSettings
from training_service.settings.service import (
    LoggingSettings,
    LogSettings,
    MetricsSettings,
    ReportSettings,
    ServerSettings,
    StorageSettings,
    StoreSettings,
)
from training_service.settings.shipped import default_algorithms, default_datasets

ENVIRONMENT_PREFIX = "TRAINING_SERVICE_"


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

    backend: Literal["process", "docker", "kubernetes", "fake"] = Field(
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
    docker: DockerSettings = DockerSettings()
    kubernetes: KubernetesSettings = KubernetesSettings()
    logs: LogSettings = LogSettings()
    metrics: MetricsSettings = MetricsSettings()
    logging: LoggingSettings = LoggingSettings()
    algorithms: dict[str, Algorithm] = Field(
        default_factory=default_algorithms,
        description="what may be trained; given, it replaces the built-in",
    )
    datasets: dict[str, Dataset] = Field(
        default={}, description='where datasets are, by id; "*" stands for any other id'
    )

    @property
    def job_policy(self) -> JobDefaults:
        """What holds for a job whose request does not say otherwise."""
        return JobDefaults(retry=RetryPolicy(**dict(self.retry)), deadlines=Deadlines(**dict(self.deadlines)))

    @property
    def pod_policy(self) -> RequestLimits | None:
        """What a request may set of its instances; None: nothing."""
        match self.backend:
            case "process":
                return self.process.pod_policy
            case "docker":
                return self.docker.pod_policy
            case "kubernetes":
                return self.kubernetes.pod_policy
            case _:
                return None

    @property
    def all_datasets(self) -> dict[str, Dataset]:
        """The datasets that are configured, or, if none is, those that ship."""
        return self.datasets or default_datasets(self.storage.root)

    @model_validator(mode="after")
    def _algorithms_run_on_the_backend(self) -> "Settings":
        for name, algorithm in self.algorithms.items():
            if self.backend == "process" and algorithm.process is None:
                raise ValueError(f"algorithms.{name} has no process.command, which the process backend needs")
            if self.backend == "docker" and algorithm.docker is None:
                raise ValueError(f"algorithms.{name} has no docker.image, which the Docker backend needs")
            if self.backend == "kubernetes" and algorithm.kubernetes is None:
                raise ValueError(
                    f"algorithms.{name} has no kubernetes.image, which the Kubernetes backend needs"
                )
        return self

    @model_validator(mode="after")
    def _options_fit_together(self) -> "Settings":
        for name, algorithm in self.algorithms.items():
            if algorithm.kubernetes is not None:
                _check_layers(name, "kubernetes", "pod", self.kubernetes.pod, algorithm.kubernetes)
            if algorithm.docker is not None:
                _check_layers(name, "docker", "container", self.docker.container, algorithm.docker)
        return self

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what loading.py hands over, which has put the sources together."""
        return (init_settings,)


def _check_layers(
    name: str,
    engine: str,
    group: str,
    of_all: PodOptions | ContainerOptions,
    recipe: KubernetesRecipe | DockerRecipe,
) -> None:
    """Raise ValueError unless the options of an algorithm can be laid over those of all."""
    try:
        options = overlay(type(of_all), of_all, recipe)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ValueError(f"algorithms.{name}.{engine} over {engine}.{group}: {reason}") from error
    if options.nproc_per_node > 1 and not recipe.command:
        raise ValueError(
            f"algorithms.{name}.{engine} has no command, which torchrun is to start, as "
            f"{engine}.{group}.nproc_per_node is more than 1"
        )
