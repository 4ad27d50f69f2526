"""The Kubernetes backend for the registry. The client library is imported only when the backend is opened."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from job_tracker.backends.kubernetes.options import FrozenPod, KubernetesRecipe, PodOptions
from job_tracker.backends.kubernetes.settings import KubernetesSettings
from job_tracker.backends.kubernetes.templates import requested_beside
from job_tracker.backends.registry import BackendPlugin, Opened, Surroundings
from job_tracker.backends.shared.instances import instance_of, options_of_role
from job_tracker.catalog import Algorithm, RequestLimits
from job_tracker.common.config import Config
from job_tracker.domain.group import InstanceOptions, InstanceSpec


class KubernetesPlugin(BackendPlugin):
    """See BackendPlugin."""

    settings_model: ClassVar[type[Config]] = KubernetesSettings
    recipe_model: ClassVar[type[Config] | None] = KubernetesRecipe
    role_model: ClassVar[type[Config] | None] = PodOptions
    fetches_programs: ClassVar[bool] = True

    def __init__(self, settings: KubernetesSettings) -> None:
        self._settings = settings

    @property
    def limits(self) -> RequestLimits | None:
        return self._settings

    @property
    def flavors(self) -> Mapping[str, Mapping[str, str]]:
        return {name: flavor.node_selector for name, flavor in self._settings.flavors.items()}

    def check_delegate(self, delegate: str | None, priorities: Mapping[str, int]) -> None:
        self._settings.check_delegate(delegate, priorities)

    def resolve(self, algorithm: Algorithm, role: str, sent: InstanceOptions) -> InstanceSpec:
        recipe = algorithm.recipes["kubernetes"]
        assert isinstance(recipe, KubernetesRecipe), "the registry has created this field"
        own = algorithm.roles.get(role)
        options = options_of_role(
            PodOptions,
            sent,
            configured=(self._settings.pod.without_identity, recipe),
            own=own.options("kubernetes") if own else None,
        )
        instance = instance_of(
            FrozenPod.of(options, recipe.pod_template),
            image=recipe.image,
            command=algorithm.command_of(role, recipe.command),
        )
        beside = requested_beside(recipe.pod_template, options.resources)
        return replace(instance, beside=beside) if beside else instance

    def resolve_program(self, command: tuple[str, ...], sent: InstanceOptions) -> InstanceSpec | None:
        configured = self._settings.pod.without_identity, PodOptions()
        options = options_of_role(PodOptions, sent, configured=configured, own=None)
        return instance_of(FrozenPod.of(options, {}), image=self._settings.program_image, command=command)

    def check_environment(self, requirements: str, name: str) -> None:  # noqa: ARG002
        self._settings.image_of("kubernetes", "", name)

    def image_of_program(self, image: str, environment: str) -> str:
        return self._settings.image_of("kubernetes", image, environment)

    async def open(self, surroundings: Surroundings) -> Opened:
        from job_tracker.backends.kubernetes.backend import KubernetesBackend
        from job_tracker.backends.kubernetes.preflight import DryRun

        backend = KubernetesBackend(
            surroundings.spool,
            self._settings,
            surroundings.extra_environment,
            surroundings.on_request,
            stop_grace=surroundings.stop_grace,
            followed=surroundings.followed,
            marks=self._settings.kueue_marks(surroundings.priorities) if surroundings.delegate else None,
        )
        await backend.connect()
        return Opened(
            backend=backend,
            inventory=backend.inventory,
            spool=surroundings.spool,
            preflight=DryRun(backend),
            access=backend,
            on_save=backend.events.job_saved,
            on_waiting=backend.events.job_waits,
            silent_seconds=lambda: backend.silent_seconds,
        )
