"""The process backend for the registry."""

from typing import ClassVar

from job_tracker.backends.process.environments import find_uv
from job_tracker.backends.process.options import OwnOptions, ProcessRecipe
from job_tracker.backends.process.settings import ProcessSettings
from job_tracker.backends.registry import BackendPlugin, Opened, Surroundings
from job_tracker.backends.shared.program_images import not_an_environment
from job_tracker.catalog import Algorithm, RequestLimits
from job_tracker.common.config import Config
from job_tracker.common.printable import quoted
from job_tracker.domain.group import InstanceOptions, InstanceSpec

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104  # wildcard listen addresses and their loopback


class ProcessPlugin(BackendPlugin):
    """See BackendPlugin."""

    settings_model: ClassVar[type[Config]] = ProcessSettings
    recipe_model: ClassVar[type[Config] | None] = ProcessRecipe

    def __init__(self, settings: ProcessSettings) -> None:
        self._settings = settings

    @property
    def limits(self) -> RequestLimits | None:
        return RequestLimits(allowed_request_options=frozenset({"nproc_per_node"}))

    def resolve(self, algorithm: Algorithm, role: str, sent: InstanceOptions) -> InstanceSpec:
        recipe = algorithm.recipes["process"]
        assert isinstance(recipe, ProcessRecipe), "the registry has created this field"
        own = recipe.model_dump_json(include=set(OwnOptions.model_fields), exclude_defaults=True)
        return InstanceSpec(
            command=algorithm.command_of(role, recipe.command),
            nproc_per_node=sent.nproc_per_node or recipe.nproc_per_node,
            engine=own,
        )

    def resolve_program(self, command: tuple[str, ...], sent: InstanceOptions) -> InstanceSpec | None:
        own = OwnOptions(virtual_environment=self._settings.program_environment)
        return InstanceSpec(
            command=command,
            nproc_per_node=sent.nproc_per_node or 1,
            engine=own.model_dump_json(exclude_defaults=True),
        )

    def check_environment(self, requirements: str, name: str) -> None:
        if requirements and find_uv() is None:
            raise ValueError(
                "not allowed: the service has no uv to install packages; its operator can add it with `pip "
                "install uv`"
            )
        if name and name not in self._settings.program_environments:
            raise ValueError(not_an_environment("process", name, self._settings.program_environments))

    def image_of_program(self, image: str, environment: str) -> str:  # noqa: ARG002
        if image:
            raise ValueError(
                f"{quoted(image)} is not allowed: backend process, which this service uses, runs programs "
                "without images; use requirements, an environment of the operator, or a service with another "
                "backend"
            )
        return ""

    def address_for_ranks(self, host: str, port: int) -> str | None:
        return f"{_EVERYWHERE.get(host, host)}:{port}"

    async def open(self, surroundings: Surroundings) -> Opened:
        from job_tracker.backends.process.backend import ProcessBackend
        from job_tracker.backends.process.spool import ProcessSpool

        root, store_id = surroundings.data_dir / "groups", surroundings.store_id
        backend = ProcessBackend(
            root,
            self._settings,
            surroundings.extra_environment,
            store_id=store_id,
            most_log=surroundings.most_log,
            trees=surroundings.trees,
            environments_root=surroundings.data_dir / "environments",
        )
        return Opened(backend=backend, spool=ProcessSpool(root, store_id), access=backend)
