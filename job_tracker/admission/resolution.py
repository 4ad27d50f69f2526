"""Makes the group spec of a job from the configuration, the algorithm and the request."""

from dataclasses import replace

from job_tracker.backends.registry import BackendPlugin
from job_tracker.catalog import Algorithm, Catalog, Entry, RequestLimits
from job_tracker.catalog.groups import Composition
from job_tracker.catalog.request_limits import check_processes
from job_tracker.catalog.templates import DATA_URI
from job_tracker.common.validation import explain
from job_tracker.domain import naming
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.errors import InvalidField, LaunchFailed
from job_tracker.domain.group import GroupSpec, InstanceOptions, InstanceSpec
from job_tracker.domain.job_spec import JobSpec

_MAX_KNOWN = 1024


class Resolver:
    """Resolves groups for one backend, from the configuration of the backend and of the algorithms."""

    def __init__(self, catalog: Catalog, backend: str, plugin: BackendPlugin) -> None:
        self._catalog = catalog
        self._backend = backend
        self._plugin = plugin
        self._known: dict[tuple[Entry[Algorithm], str, str], InstanceSpec] = {}

    @property
    def limits(self) -> RequestLimits | None:
        """Return the limits of instance options in requests; None if requests may not have such options."""
        return self._plugin.limits

    def resolve(self, entry: Entry[Algorithm], group: Composition, sent: InstanceOptions) -> GroupSpec:
        """Return the algorithm's group spec, with placeholders still in its commands.

        Raises InvalidField if the instance options `sent` are not allowed.
        """
        composed = GroupSpec(
            roles=group.roles,
            elastic=group.elastic,
            ends_with_master=group.ends_with_master,
            max_lost=group.max_lost,
        )
        try:
            resolved = self._resolved(entry, composed, sent)
        except ValueError as error:
            raise InvalidField("pod_options", explain(error)) from error
        check_processes(resolved.trainers, resolved.framework)
        return resolved

    def resolve_program(
        self, framework: str, command: tuple[str, ...], group: Composition, sent: InstanceOptions
    ) -> GroupSpec:
        """Return the spec of a group that runs the command of an uploaded program.

        Raises InvalidField if the instance options `sent` are not allowed, or if the backend cannot run
        uploaded programs.
        """
        try:
            trainers = self._plugin.resolve_program(command, sent)
        except ValueError as error:
            raise InvalidField("pod_options", explain(error)) from error
        if trainers is None:
            raise InvalidField(
                "program",
                f"backend {self._backend}, which this service uses, cannot run uploaded programs; use a "
                "configured algorithm, or a service with another backend",
            )
        check_processes(trainers, framework)
        return GroupSpec(roles=group.roles, backend=self._backend, framework=framework, trainers=trainers)

    def in_environment(self, group: GroupSpec, requirements: str, name: str, image: str) -> GroupSpec:
        """Return the group of a program, with the image in which the program runs.

        Raises InvalidField if the program cannot have these requirements, the Python environment `name`, or
        the image.
        """
        field = "program.requirements" if requirements else "program.python_environment"
        try:
            if requirements or name:
                self._plugin.check_environment(requirements, name)
            field = "program.image"
            found = self._plugin.image_of_program(image, name)
        except ValueError as error:
            raise InvalidField(field, str(error)) from error
        return replace(group, trainers=replace(group.trainers, image=found)) if found else group

    def completed(self, spec: JobSpec) -> JobSpec:
        """Return the spec. If it comes from an earlier version of the service, or was resolved for another
        backend, resolve it first.

        Raises LaunchFailed if the spec cannot be resolved: the algorithm is no longer configured, the options
        no longer fit, or the job runs an uploaded program.
        """
        if spec.group.backend == self._backend:
            return spec
        if spec.program is not None:
            raise LaunchFailed(
                Diagnosis(
                    category=Category.LAUNCH_FAILED,
                    summary=f"The job was accepted for backend {spec.group.backend}, and the service now "
                    f"uses backend {self._backend}.",
                    resolution="Submit the program again: programs cannot change their backend.",
                )
            )
        name = spec.algorithm
        entry = self._catalog.algorithms(spec.project).get(name)
        algorithm = entry.value if entry else None
        if entry is None or algorithm is None or not self._runs(algorithm):
            raise LaunchFailed(
                Diagnosis(
                    category=Category.ALGORITHM_GONE,
                    summary=f"The algorithm {name!r} is no longer configured for backend {self._backend}.",
                    resolution=f"Restore algorithms.{name}.{self._backend} in the configuration, and "
                    "submit the job again.",
                )
            )
        try:
            group = self._resolved(entry, spec.group, spec.pod_options)
            check_processes(group.trainers, group.framework)
            data = {DATA_URI: spec.data_uri} if spec.data_uri else {}
            group = algorithm.filled(group, {**spec.environment, **data})
        except (ValueError, InvalidField) as error:
            raise LaunchFailed(
                Diagnosis(
                    category=Category.LAUNCH_FAILED,
                    summary="The options of the job no longer fit the configuration.",
                    resolution=f"Correct {self._backend} and algorithms.{name}.{self._backend} in the "
                    "configuration, and submit the job again.",
                    detail=explain(error),
                )
            ) from error
        return replace(spec, group=group)

    def _runs(self, algorithm: Algorithm) -> bool:
        return self._plugin.recipe_model is None or self._backend in algorithm.recipes

    def _resolved(self, entry: Entry[Algorithm], group: GroupSpec, sent: InstanceOptions) -> GroupSpec:
        algorithm = entry.value
        assert algorithm is not None
        return replace(
            group,
            backend=self._backend,
            framework=algorithm.framework,
            trainers=self._instance(entry, naming.WORKER, sent),
            others={
                role: self._instance(entry, role, sent) for role in group.roles if role in algorithm.roles
            },
            environment=algorithm.environment,
        )

    def _instance(self, entry: Entry[Algorithm], role: str, sent: InstanceOptions) -> InstanceSpec:
        # The result is cached, since resolving is slow, and most jobs of an algorithm have the same options.
        key = entry, role, repr(sent)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MAX_KNOWN:
                del self._known[next(iter(self._known))]
            assert entry.value is not None
            known = self._known[key] = self._plugin.resolve(entry.value, role, sent)
        return known
