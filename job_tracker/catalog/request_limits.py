"""What a request may set of its pods: the options that are allowed, and how much of them."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationError

from job_tracker.catalog.requested import RequestedPodOptions
from job_tracker.catalog.syntax import (
    KeyPrefix,
    LabelKey,
    Resources,
    amount,
    is_reserved_key,
    key_prefix,
)
from job_tracker.common.config import Config
from job_tracker.common.printable import quoted
from job_tracker.common.validation import problems
from job_tracker.domain.errors import InvalidField
from job_tracker.domain.group import InstanceOptions, InstanceSpec
from job_tracker.frameworks import FRAMEWORKS

PodOptionName = Literal[
    "resources", "nproc_per_node", "node_selector", "tolerations", "priority_class", "labels", "annotations"
]
FIELD = "pod_options"
_GPU = "/gpu"  # nvidia.com/gpu, amd.com/gpu, …
# The others say which machines a pod gets, and before whom.
ALLOWED_BY_DEFAULT: frozenset[PodOptionName] = frozenset(
    {"resources", "nproc_per_node", "labels", "annotations"}
)


class RequestLimits(Config):
    """What requests may set: a part of the settings of backends that have limits.

    A resource that `max_resources` does not name is not bounded. Keys of labels and annotations with a
    prefix steer whatever the prefix belongs to (an identity, a network, a sidecar), so a request may use
    only those in `allowed_key_prefixes`. A label without one, such as `app`, may put a pod under another
    team's Service or network policy, and one of Kubernetes under a controller's: `allowed_labels` names those
    that a request may set. Nothing selects by annotations, so those without a prefix are the user's own.
    """

    resource_names: ClassVar[frozenset[str] | None] = None
    """The resources that there are; None: any that a cluster may have."""

    allowed_request_options: frozenset[PodOptionName] = Field(
        default=ALLOWED_BY_DEFAULT,
        description="which options of its instances a request may set (pod_options)",
    )
    allowed_key_prefixes: tuple[KeyPrefix, ...] = Field(
        default=(), description="prefixes that keys of labels and annotations in a request may have"
    )
    allowed_labels: frozenset[LabelKey] = Field(
        default=frozenset(),
        description="labels that a request may set besides, by name: those without a prefix, such as team, "
        "and those of kubernetes.io and k8s.io",
    )
    max_resources: Resources = Field(
        default={}, description="the most that a request may ask for, for each instance"
    )

    def check(self, sent: Mapping[str, Any]) -> InstanceOptions:
        """The options as a job keeps them: only what was sent.

        Raises InvalidField, naming the first field that is wrong, its value and what is allowed.
        """
        for name in sent:
            if name not in self.allowed_request_options:
                allowed = ", ".join(sorted(self.allowed_request_options)) or "none"
                raise InvalidField(
                    f"{FIELD}.{quoted(name)[1:-1]}", f"may not be set by a request; allowed are: {allowed}"
                )
        try:
            options = RequestedPodOptions.model_validate(dict(sent))
        except ValidationError as error:
            problem = next(problems(error, RequestedPodOptions))
            raise InvalidField(".".join((FIELD, *problem.path)), problem.reason) from error
        self._check_amounts(options)
        self._check_keys(options)
        return options.as_options()

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


def check_processes(instance: InstanceSpec, framework: str) -> None:
    """Raise InvalidField if a request asks for more processes in an instance than there can be."""
    processes = instance.processes
    field = f"{FIELD}.nproc_per_node"
    if processes == 1:
        return
    if not FRAMEWORKS[framework].traits.starts_processes:
        raise InvalidField(
            field,
            f"{processes} is not allowed: framework {framework} has one process in each instance; only 1 is "
            "allowed",
        )
    if not instance.command:
        raise InvalidField(
            field,
            f"{processes} is not allowed: the algorithm has no command that a launcher could start; only 1 "
            "is allowed",
        )
    gpus = sum(int(amount(each)) for name, each in instance.resources.items() if name.endswith(_GPU))
    if 0 < gpus < processes:
        raise InvalidField(
            field, f"{processes} is more than the {gpus} GPUs of each instance; at most {gpus} is allowed"
        )
