"""The settings as a whole, and the checks across their groups."""

import re
from functools import cache, cached_property
from typing import Annotated, Any, TypeVar, get_args

from pydantic import AfterValidator, Field, ValidationInfo, create_model, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from job_tracker.backends.registry import BackendPlugin, BrokenPlugin, installed
from job_tracker.catalog import Algorithm, Dataset, JobDefaults, algorithm_model
from job_tracker.catalog.groups import RoleRecipe
from job_tracker.common.printable import quoted
from job_tracker.common.validation import explain
from job_tracker.domain import naming
from job_tracker.domain.group import InstanceOptions
from job_tracker.domain.policies import Deadlines, NumberPolicy, RetryPolicy
from training_service.settings.audit import AuditSettings
from training_service.settings.auth import AuthSettings
from training_service.settings.catalog import CatalogSettings
from training_service.settings.jobs import (
    DeadlineSettings,
    JobSettings,
    NumberSettings,
    RetrySettings,
)
from training_service.settings.limits import LimitSettings
from training_service.settings.programs import ProgramSettings
from training_service.settings.projects import ProjectTables
from training_service.settings.scheduling import SchedulingSettings
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
from training_service.settings.web import WebSettings

ENVIRONMENT_PREFIX = "TRAINING_SERVICE_"

T = TypeVar("T")

_BACKEND_NAME = re.compile("[a-z][a-z0-9]*(_[a-z0-9]+)*", re.ASCII)


def _installed_backend(name: str) -> str:
    if name not in installed():
        raise ValueError(f"{quoted(name)} is not an installed backend; allowed: {', '.join(installed())}")
    return name


class Settings(BaseSettings):
    """All settings, except those of backends. The class that `settings_model()` returns has those, too."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        env_prefix=ENVIRONMENT_PREFIX,
        env_nested_delimiter="__",
        # This is only about names of settings: keys of tables, such as names of algorithms, keep their case.
        case_sensitive=False,
    )

    backend: Annotated[str, AfterValidator(_installed_backend)] = Field(
        default="process",
        description="Backend that runs the jobs: `process`, `docker`, `kubernetes`, the name of another "
        "installed backend, or `fake`, which only simulates jobs, for trying out clients.",
    )
    server: ServerSettings = ServerSettings()
    storage: StorageSettings = Field(default_factory=StorageSettings)
    store: StoreSettings = StoreSettings()
    reports: ReportSettings = ReportSettings()
    scheduling: SchedulingSettings = SchedulingSettings()
    auth: AuthSettings = AuthSettings()
    audit: AuditSettings = AuditSettings()
    limits: LimitSettings = LimitSettings()
    projects: ProjectTables = Field(
        default={},
        description="Projects, by name, besides `default`. Further projects may be in `auth.projects_file`, "
        "or be declared through the API. Jobs of projects that do not exist are refused.",
    )
    programs: ProgramSettings = ProgramSettings()
    jobs: JobSettings = JobSettings()
    retry: RetrySettings = RetrySettings()
    deadlines: DeadlineSettings = DeadlineSettings()
    numbers: NumberSettings = NumberSettings()
    logs: LogSettings = LogSettings()
    metrics: MetricsSettings = MetricsSettings()
    logging: LoggingSettings = LoggingSettings()
    web: WebSettings = WebSettings()
    catalog: CatalogSettings = CatalogSettings()
    algorithms: dict[str, Algorithm] = Field(
        default={},
        validate_default=True,
        description="Algorithms that can be trained, by name, besides the built-in ones.",
    )
    datasets: dict[str, Dataset] = Field(
        default={},
        validate_default=True,
        description="Location of datasets, by id, besides the built-in ones. `*` stands for every other id.",
    )

    @field_validator("algorithms")
    @classmethod
    def _with_shipped_algorithms(
        cls, configured: dict[str, Algorithm], info: ValidationInfo
    ) -> dict[str, Algorithm]:
        shipped = cls.shipped_algorithms()
        plugin = installed().get(info.data.get("backend", ""))
        if plugin is not None and plugin.recipe_model is not None:
            backend = info.data["backend"]
            shipped = {name: each for name, each in shipped.items() if backend in each.recipes}
        return _added(shipped, configured, info)

    @field_validator("datasets")
    @classmethod
    def _with_shipped_datasets(
        cls, configured: dict[str, Dataset], info: ValidationInfo
    ) -> dict[str, Dataset]:
        if "storage" not in info.data:  # the value of `storage` was refused
            return configured
        return _added(default_datasets(info.data["storage"].root), configured, info)

    @classmethod
    def algorithm_model(cls) -> type[Algorithm]:
        """Return the pydantic model of an algorithm, with a table for each backend."""
        model: type[Algorithm] = get_args(cls.model_fields["algorithms"].annotation)[1]
        return model

    @classmethod
    def shipped_algorithms(cls) -> dict[str, Algorithm]:
        """Return the built-in algorithms by name.

        There are none for the base class: only the class from `settings_model` has the tables of the
        backends, which the algorithms need.
        """
        model = cls.algorithm_model()
        return {} if model is Algorithm else default_algorithms(model)

    @property
    def shipped_datasets(self) -> dict[str, Dataset]:
        """The built-in datasets, by id."""
        return default_datasets(self.storage.root)

    @property
    def job_defaults(self) -> JobDefaults:
        """The default policies of jobs. A request can replace them for its job."""
        return JobDefaults(
            retry=RetryPolicy(**dict(self.retry)),
            deadlines=Deadlines(**{name: each or None for name, each in self.deadlines}),
            numbers=NumberPolicy(**dict(self.numbers)),
        )

    @cached_property
    def plugin(self) -> BackendPlugin:
        """The plugin of the configured backend, with its settings."""
        return self._plugin_of(self.backend)

    @property
    def followed_flavors(self) -> tuple[str, ...]:
        """The flavors whose capacity follows the machines of the backend."""
        if self.backend not in type(self).model_fields:  # this model has no tables of backends
            return ()
        return tuple(name for name in self.plugin.flavors if name not in self.scheduling.flavors)

    def _plugin_of(self, backend: str) -> BackendPlugin:
        return installed()[backend](getattr(self, backend))

    @model_validator(mode="after")
    def _algorithms_can_run(self) -> "Settings":
        for name, algorithm in self.algorithms.items():
            self.check_algorithm(f"algorithms.{name}.", algorithm)
        return self

    @model_validator(mode="after")
    def _queues_fit(self) -> "Settings":
        self.scheduling.check(self.followed_flavors)
        if self.backend in type(self).model_fields:
            try:
                self.plugin.check_delegate(self.scheduling.delegate, self.scheduling.priorities)
            except ValueError as error:
                raise ValueError(f"{self.backend}.{error}") from error
        return self

    def check_algorithm(self, place: str, algorithm: Algorithm) -> None:
        """Raise ValueError if the algorithm cannot run on the configured backend.

        Also raise ValueError if the algorithm's options for any backend conflict with the configured options
        of that backend for all algorithms. `place` is the text before the names of the algorithm's fields in
        the message.
        """
        recipe = installed()[self.backend].recipe_model
        if recipe is not None and self.backend not in algorithm.recipes:
            required = [f".{field}" for field, info in recipe.model_fields.items() if info.is_required()]
            needed = "".join([self.backend, *required[:1]])
            raise ValueError(f"{place}{needed} is missing; backend {self.backend} needs it")
        for backend in algorithm.recipes:
            for role in (naming.WORKER, *algorithm.roles):
                self._check_options(place, algorithm, backend, role)

    def _check_options(self, place: str, algorithm: Algorithm, backend: str, role: str) -> None:
        """Raise ValueError if options of the algorithm conflict with options for all algorithms."""
        of_role = f" for the role {role}" if role in algorithm.roles else ""
        what = f"{place}{backend}{of_role}, together with the options of {backend} for all algorithms"
        try:
            instance = self._plugin_of(backend).resolve(algorithm, role, InstanceOptions())
        except ValueError as error:
            raise ValueError(f"{what}: {explain(error)}") from error
        if instance.processes > 1 and not instance.command:
            raise ValueError(
                f"{what}: nproc_per_node is {instance.processes}, which needs a command; set command, or "
                "nproc_per_node to 1"
            )

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Use only the values from loading.py, which has merged the sources."""
        return (init_settings,)


def _added(shipped: dict[str, T], configured: dict[str, T], info: ValidationInfo) -> dict[str, T]:
    """Return the configured entries, and the built-in entries (`shipped`) whose names are not configured.

    With `catalog.replace_shipped`, built-in entries are returned only if no entry is configured.
    """
    catalog: CatalogSettings | None = info.data.get("catalog")
    is_replaced = catalog is not None and catalog.replace_shipped and configured
    return configured if is_replaced else {**shipped, **configured}


_TAKEN = {name for model in (Settings, Algorithm, RoleRecipe) for name in (*dir(model), *model.model_fields)}
"""Names that no backend can have: its table would hide a field of these models."""


@cache
def settings_model() -> type[Settings]:
    """Return the class of the settings, with a table for each backend.

    `algorithms` has tables for the backends, too. Raises BrokenPlugin if a backend cannot be used or has a
    name that is not allowed, or if no backend is installed.
    """
    plugins = installed()
    for name in plugins:
        if not _BACKEND_NAME.fullmatch(name) or name in _TAKEN:
            raise BrokenPlugin(
                f"backend name {name!r} is not allowed: use lower-case letters and digits, a letter first, "
                "with single _ between them, and no name that the settings already use. Uninstall the "
                "backend's package"
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
        Settings.model_fields["algorithms"],
    )
    return create_model("Settings", __base__=Settings, __doc__=Settings.__doc__, **fields)
