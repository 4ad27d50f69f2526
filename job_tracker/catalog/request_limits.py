"""Limits of requests: the options that requests may set for their instances, and the largest values."""

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
    "resources",
    "nproc_per_node",
    "node_selector",
    "tolerations",
    "priority_class",
    "labels",
    "annotations",
    "placement",
]
FIELD = "pod_options"
_GPU = "/gpu"  # nvidia.com/gpu, amd.com/gpu, …
# All options, except those that choose particular machines or a priority.
ALLOWED_BY_DEFAULT: frozenset[PodOptionName] = frozenset(
    {"resources", "nproc_per_node", "labels", "annotations", "placement"}
)


class RequestLimits(Config):
    """Limits of requests. The settings of a backend may inherit from this class.

    A label or annotation whose key has a prefix can configure another component (an identity, a network, a
    sidecar), so a request may only use the prefixes in `allowed_key_prefixes`. A label without a prefix, such
    as `app`, could put a pod under another team's Service or network policy. A label with a prefix of
    Kubernetes could put the pod under a controller. Of these two kinds of labels, a request may only set
    those in `allowed_labels`. Pods are never selected by annotations, so a request may set any annotation
    without a prefix.
    """

    resource_names: ClassVar[frozenset[str] | None] = None
    """The resources that the engine has; None means any resource, since clusters can define their own."""

    allowed_request_options: frozenset[PodOptionName] = Field(
        default=ALLOWED_BY_DEFAULT,
        description="The options in `pod_options` that a request may set for its instances.",
    )
    allowed_key_prefixes: tuple[KeyPrefix, ...] = Field(
        default=(),
        description="Allowed prefixes (domains) of the keys of labels and annotations in a request.",
    )
    allowed_labels: frozenset[LabelKey] = Field(
        default=frozenset(),
        description="Names of further labels that a request may set: labels without a prefix, such as "
        "`team`, and labels with the prefixes kubernetes.io and k8s.io.",
    )
    max_resources: Resources = Field(
        default={},
        description="Largest amount of each resource in a request, for each instance. A resource that is not "
        "named here has no limit.",
    )

    def check(self, sent: Mapping[str, Any]) -> InstanceOptions:
        """Return the options of the request, without defaults, as they are stored with the job.

        Raises InvalidField for an option or a value that is not allowed.
        """
        for name in sent:
            if name not in self.allowed_request_options:
                allowed = ", ".join(sorted(self.allowed_request_options)) or "none"
                raise InvalidField(
                    f"{FIELD}.{quoted(name)[1:-1]}",
                    f"a request may not set this option; allowed: {allowed}. Leave it out",
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
                    f"{FIELD}.resources.{name}", f"containers have no such resource; allowed: {allowed}"
                )
            most = self.max_resources.get(name)
            if most is not None and amount(quantity) > amount(most):
                raise InvalidField(
                    f"{FIELD}.resources.{name}", f"{quantity!r} is not allowed; at most {most} is allowed"
                )

    def _check_keys(self, options: RequestedPodOptions) -> None:
        prefixes = ", ".join(self.allowed_key_prefixes) or "none"
        for key in options.labels:
            has_prefix = key_prefix(key) in self.allowed_key_prefixes and not is_reserved_key(key)
            if not has_prefix and key not in self.allowed_labels:
                raise InvalidField(
                    f"{FIELD}.labels",
                    f"{quoted(key)} is not allowed: other teams' Services and network policies may select "
                    f"it; allowed: keys with a prefix in allowed_key_prefixes ({prefixes}) and the keys in "
                    f"allowed_labels ({', '.join(sorted(self.allowed_labels)) or 'none'})",
                )
        for key in options.annotations:
            if key_prefix(key) not in ("", *self.allowed_key_prefixes):
                allowed = ", or the prefix ".join(("no prefix", *self.allowed_key_prefixes))
                raise InvalidField(f"{FIELD}.annotations", f"{quoted(key)} is not allowed; use {allowed}")


def check_processes(instance: InstanceSpec, framework: str) -> None:
    """Raise InvalidField if the instance cannot run the training processes that its options ask for."""
    processes = instance.processes
    field = f"{FIELD}.nproc_per_node"
    if processes == 1:
        return
    if not FRAMEWORKS[framework].traits.starts_processes:
        raise InvalidField(
            field,
            f"{processes} is not allowed: framework {framework} starts one process in each instance; only 1 "
            "is allowed",
        )
    if not instance.command:
        raise InvalidField(
            field,
            f"{processes} is not allowed: the algorithm has no command that a launcher can run; only 1 is "
            "allowed",
        )
    gpus = sum(int(amount(each)) for name, each in instance.resources.items() if name.endswith(_GPU))
    if 0 < gpus < processes:
        raise InvalidField(
            field, f"{processes} is not allowed: each instance has {gpus} GPUs; at most {gpus} is allowed"
        )
