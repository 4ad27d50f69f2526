"""All settings, and what they must be to each other."""

import re
from functools import cache, cached_property
from typing import Annotated, Any

from pydantic import AfterValidator, Field, create_model, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from job_tracker.backends.registry import BackendPlugin, BrokenPlugin, installed
from job_tracker.catalog import Algorithm, Dataset, JobDefaults, algorithm_model
from job_tracker.catalog.groups import RoleRecipe
from job_tracker.common.printable import quoted
from job_tracker.common.validation import explain
from job_tracker.domain import naming
from job_tracker.domain.group import InstanceOptions
from job_tracker.domain.policies import Deadlines, RetryPolicy
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

_BACKEND_NAME = re.compile("[a-z][a-z0-9]*(_[a-z0-9]+)*", re.ASCII)


def _installed_backend(name: str) -> str:
    if name not in installed():
        raise ValueError(f"{quoted(name)} is not an installed backend; allowed are {', '.join(installed())}")
    return name


class Settings(BaseSettings):
    """All of it, but for what backends bring: settings_model() is the whole."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        env_prefix=ENVIRONMENT_PREFIX,
        env_nested_delimiter="__",
        # Names of algorithms and the like are keys below these, and case matters there.
        case_sensitive=False,
    )

    backend: Annotated[str, AfterValidator(_installed_backend)] = Field(
        default="process",
        description="where groups run: process, docker, kubernetes, that of another package, or fake, which "
        "only pretends, to try clients out",
    )
    server: ServerSettings = ServerSettings()
    storage: StorageSettings = Field(default_factory=StorageSettings)
    store: StoreSettings = StoreSettings()
    reports: ReportSettings = ReportSettings()
    scheduling: SchedulingSettings = SchedulingSettings()
    jobs: JobSettings = JobSettings()
    retry: RetrySettings = RetrySettings()
    deadlines: DeadlineSettings = DeadlineSettings()
    logs: LogSettings = LogSettings()
    metrics: MetricsSettings = MetricsSettings()
    logging: LoggingSettings = LoggingSettings()
    algorithms: dict[str, Algorithm] = {}
    datasets: dict[str, Dataset] = Field(
        default={}, description='where datasets are, by id; "*" stands for any other id'
    )

    @property
    def job_defaults(self) -> JobDefaults:
        """What holds for a job whose request does not say otherwise."""
        return JobDefaults(retry=RetryPolicy(**dict(self.retry)), deadlines=Deadlines(**dict(self.deadlines)))

    @cached_property
    def plugin(self) -> BackendPlugin:
        """The backend that is chosen, with its settings."""
        return self._plugin_of(self.backend)

    def _plugin_of(self, backend: str) -> BackendPlugin:
        return installed()[backend](getattr(self, backend))

    @property
    def all_datasets(self) -> dict[str, Dataset]:
        """The datasets that are configured, or, if none is, those that ship."""
        return self.datasets or default_datasets(self.storage.root)

    @model_validator(mode="after")
    def _algorithms_run_on_the_backend(self) -> "Settings":
        recipe = installed()[self.backend].recipe_model
        for name, algorithm in self.algorithms.items():
            if recipe is not None and self.backend not in algorithm.recipes:
                required = [f".{field}" for field, info in recipe.model_fields.items() if info.is_required()]
                needed = "".join([self.backend, *required[:1]])
                raise ValueError(f"algorithms.{name} has no {needed}, which backend {self.backend} needs")
        return self

    @model_validator(mode="after")
    def _options_fit_together(self) -> "Settings":
        for name, algorithm in self.algorithms.items():
            for backend in algorithm.recipes:
                for role in (naming.WORKER, *algorithm.roles):
                    self._check_options(name, algorithm, backend, role)
        return self

    def _check_options(self, name: str, algorithm: Algorithm, backend: str, role: str) -> None:
        """Raise ValueError unless the options of the algorithm can be laid over those of all."""
        what = f"algorithms.{name}.{backend} over {backend}"
        try:
            instance = self._plugin_of(backend).resolve(algorithm, role, InstanceOptions())
        except ValueError as error:
            raise ValueError(f"{what}: {explain(error)}") from error
        if instance.processes > 1 and not instance.command:
            raise ValueError(
                f"{what}: nproc_per_node is more than 1, and there is no command that torchrun is to start"
            )

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what loading.py hands over, which has put the sources together."""
        return (init_settings,)


_TAKEN = {name for model in (Settings, Algorithm, RoleRecipe) for name in (*dir(model), *model.model_fields)}
"""What a backend's table in one of these would hide."""


@cache
def settings_model() -> type[Settings]:
    """The settings, with a table for each backend that is installed, in algorithms as well.

    Raises BrokenPlugin.
    """
    plugins = installed()
    for name in plugins:
        if not _BACKEND_NAME.fullmatch(name) or name in _TAKEN:
            raise BrokenPlugin(
                f"a backend cannot have the name {name!r}: it is that of another setting, or not made of "
                "lower-case letters, digits and _; uninstall its package"
            )
    recipes = {name: each.recipe_model for name, each in plugins.items() if each.recipe_model}
    roles = {name: each.role_model for name, each in plugins.items() if each.role_model}
    algorithm = algorithm_model(recipes, roles)
    fields: dict[str, Any] = {
        name: (each.settings_model, Field(default_factory=each.settings_model))
        for name, each in plugins.items()
    }
    fields["algorithms"] = (
        dict[str, algorithm],  # type: ignore[valid-type]
        Field(
            default_factory=lambda: default_algorithms(algorithm),
            description="what may be trained; given, it replaces the built-in",
        ),
    )
    return create_model("Settings", __base__=Settings, __doc__=Settings.__doc__, **fields)
