"""What a request may set of its pods: the options that are allowed, and how much of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from job_tracker.catalog.algorithms import Algorithm
from job_tracker.catalog.containers import ContainerOptions
from job_tracker.catalog.pods import PodOptions, RequestedPodOptions
from job_tracker.catalog.syntax import amount, is_reserved_key, key_prefix
from job_tracker.common.printable import quoted
from job_tracker.domain.errors import InvalidField

PodOptionName = Literal[
    "resources", "nproc_per_node", "node_selector", "tolerations", "priority_class", "labels", "annotations"
]
FIELD = "pod_options"
_GPU = "/gpu"  # nvidia.com/gpu, amd.com/gpu, …
# The others say which machines a pod gets, and before whom.
ALLOWED_BY_DEFAULT: frozenset[PodOptionName] = frozenset(
    {"resources", "nproc_per_node", "labels", "annotations"}
)
ContainerOptionName = Literal["resources", "nproc_per_node", "labels"]
OF_CONTAINERS: frozenset[ContainerOptionName] = frozenset({"resources", "nproc_per_node", "labels"})


class Configured(NamedTuple):
    """What is configured of an algorithm's instances, before a request is laid over it."""

    processes: int = 1
    resources: Mapping[str, str] = MappingProxyType({})
    has_command: bool = True
    """Whether there is a command that a launcher of several processes could start."""


def of_pods(algorithm: Algorithm, of_all: PodOptions | None = None) -> Configured:
    """What is configured of an algorithm's pods."""
    recipe = algorithm.kubernetes
    if recipe is None:
        return Configured()
    options = (of_all or PodOptions()).merged(recipe)
    return Configured(options.nproc_per_node, options.resources, bool(recipe.command))


def of_containers(algorithm: Algorithm, of_all: ContainerOptions | None = None) -> Configured:
    """What is configured of an algorithm's containers."""
    recipe = algorithm.docker
    if recipe is None:
        return Configured()
    options = (of_all or ContainerOptions()).merged(recipe)
    return Configured(options.nproc_per_node, options.resources, bool(recipe.command))


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """What requests may set, as configured.

    A resource that `max_resources` does not name is not bounded. Keys of labels and annotations with a
    prefix steer whatever the prefix belongs to (an identity, a network, a sidecar), so a request may use
    only those in `allowed_key_prefixes`. A label without one, such as `app`, may put a pod under another
    team's Service or network policy, and one of Kubernetes under a controller's: `allowed_labels` names those
    that a request may set. Nothing selects by annotations, so those without a prefix are the user's own.
    """

    allowed: frozenset[PodOptionName] = ALLOWED_BY_DEFAULT
    max_resources: Mapping[str, str] = field(default_factory=dict)
    allowed_key_prefixes: tuple[str, ...] = ()
    allowed_labels: frozenset[str] = frozenset()
    configured: Callable[[Algorithm], Configured] = of_pods
    resource_names: frozenset[str] | None = None
    """The resources that there are; None: any that a cluster may have."""

    def check(self, sent: Mapping[str, Any], algorithm: Algorithm) -> dict[str, Any]:
        """The options as a job keeps them: JSON-able, and only what was sent.

        Raises InvalidField, naming the first field that is wrong, its value and what is allowed.
        """
        for name in sent:
            if name not in self.allowed:
                allowed = ", ".join(sorted(self.allowed)) or "none"
                raise InvalidField(
                    f"{FIELD}.{quoted(name)[1:-1]}", f"may not be set by a request; allowed are: {allowed}"
                )
        try:
            options = RequestedPodOptions.model_validate(dict(sent))
        except ValidationError as error:
            raise _first_problem(error) from error
        self._check_amounts(options)
        self._check_keys(options)
        self._check_processes(options, algorithm)
        return options.model_dump(mode="json", exclude_unset=True)

    def processes_of(self, options: Mapping[str, Any], algorithm: Algorithm) -> int:
        """How many training processes each instance has, with the options that a request has set."""
        return int(options.get("nproc_per_node", self.configured(algorithm).processes))

    def _check_amounts(self, options: RequestedPodOptions) -> None:
        for name, quantity in options.resources.items():
            if self.resource_names is not None and name not in self.resource_names:
                allowed = ", ".join(sorted(self.resource_names))
                raise InvalidField(
                    f"{FIELD}.resources.{name}", f"is no resource of a container; allowed are: {allowed}"
                )
            most = self.max_resources.get(name)
            if most is not None and amount(quantity) > amount(most):
                raise InvalidField(
                    f"{FIELD}.resources.{name}", f"{quantity!r} is too much; at most {most} is allowed"
                )

    def _check_keys(self, options: RequestedPodOptions) -> None:
        prefixes = ", ".join(self.allowed_key_prefixes) or "none"
        for key in options.labels:
            has_prefix = key_prefix(key) in self.allowed_key_prefixes and not is_reserved_key(key)
            if not has_prefix and key not in self.allowed_labels:
                raise InvalidField(
                    f"{FIELD}.labels",
                    f"{quoted(key)} is not allowed: Services and policies of others may select by it; "
                    f"allowed are keys with a prefix of allowed_key_prefixes ({prefixes}) and those of "
                    f"allowed_labels ({', '.join(sorted(self.allowed_labels)) or 'none'})",
                )
        for key in options.annotations:
            if key_prefix(key) not in ("", *self.allowed_key_prefixes):
                allowed = ", ".join(("none", *self.allowed_key_prefixes))
                raise InvalidField(
                    f"{FIELD}.annotations", f"{quoted(key)} is not allowed; allowed prefixes are: {allowed}"
                )

    def _check_processes(self, requested: RequestedPodOptions, algorithm: Algorithm) -> None:
        configured = self.configured(algorithm)
        processes = self.processes_of(requested.model_dump(exclude_unset=True), algorithm)
        field = f"{FIELD}.nproc_per_node"
        if processes == 1:
            return
        if not algorithm.composer.traits.starts_processes:
            raise InvalidField(
                field,
                f"{processes} is not allowed: framework {algorithm.framework} has one process in each "
                "instance; only 1 is allowed",
            )
        if not configured.has_command:
            raise InvalidField(
                field,
                f"{processes} is not allowed: the algorithm has no command that a launcher could start; "
                "only 1 is allowed",
            )
        resources = {**configured.resources, **requested.resources}
        gpus = sum(int(amount(each)) for name, each in resources.items() if name.endswith(_GPU))
        if 0 < gpus < processes:
            raise InvalidField(
                field, f"{processes} is more than the {gpus} GPUs of each instance; at most {gpus} is allowed"
            )


def _first_problem(error: ValidationError) -> InvalidField:
    problem = error.errors()[0]
    path = [FIELD, *(quoted(str(part))[1:-1] for part in problem["loc"] if part != "[key]")]
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        return InvalidField(".".join(path), "there is no such option")
    if problem["type"] != "value_error":  # ours quote the value themselves
        message = f"{quoted(str(problem['input']))}: {message[0].lower()}{message[1:]}"
    return InvalidField(".".join(path), message)
