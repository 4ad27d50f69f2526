"""The plugin of the Docker backend. The client library is imported only when the backend is opened."""

from typing import ClassVar

from job_tracker.backends.docker.options import ContainerOptions, DockerRecipe
from job_tracker.backends.docker.settings import HOST, DockerSettings
from job_tracker.backends.registry import BackendPlugin, Opened, Surroundings
from job_tracker.backends.shared.instances import instance_of, options_of_role
from job_tracker.catalog import Algorithm, RequestLimits
from job_tracker.common.config import Config
from job_tracker.domain.group import InstanceOptions, InstanceSpec

_EVERYWHERE = ("0.0.0.0", "[::]")  # noqa: S104


class DockerPlugin(BackendPlugin):
    """See BackendPlugin."""

    settings_model: ClassVar[type[Config]] = DockerSettings
    recipe_model: ClassVar[type[Config] | None] = DockerRecipe
    role_model: ClassVar[type[Config] | None] = ContainerOptions

    def __init__(self, settings: DockerSettings) -> None:
        self._settings = settings

    @property
    def limits(self) -> RequestLimits | None:
        return self._settings

    def resolve(self, algorithm: Algorithm, role: str, sent: InstanceOptions) -> InstanceSpec:
        recipe = algorithm.recipes["docker"]
        assert isinstance(recipe, DockerRecipe), "the registry has created this field"
        own = algorithm.roles.get(role)
        options = options_of_role(
            ContainerOptions,
            sent,
            configured=(self._settings.container.without_identity, recipe),
            own=own.options("docker") if own else None,
        )
        return instance_of(options, image=recipe.image, command=algorithm.command_of(role, recipe.command))

    def resolve_program(self, command: tuple[str, ...], sent: InstanceOptions) -> InstanceSpec | None:
        configured = self._settings.container.without_identity, ContainerOptions()
        options = options_of_role(ContainerOptions, sent, configured=configured, own=None)
        return instance_of(options, image=self._settings.program_image, command=command)

    def check_environment(self, requirements: str, name: str) -> None:  # noqa: ARG002
        self._settings.image_of("docker", "", name)

    def image_of_program(self, image: str, environment: str) -> str:
        return self._settings.image_of("docker", image, environment)

    def address_for_ranks(self, host: str, port: int) -> str | None:
        reachable = host in _EVERYWHERE and HOST in self._settings.extra_hosts
        return f"{HOST}:{port}" if reachable else None

    async def open(self, surroundings: Surroundings) -> Opened:
        from job_tracker.backends.docker.backend import DockerBackend

        backend = DockerBackend(
            surroundings.spool, self._settings, surroundings.extra_environment, surroundings.trees
        )
        await backend.connect()
        return Opened(backend=backend, spool=surroundings.spool, access=backend)
