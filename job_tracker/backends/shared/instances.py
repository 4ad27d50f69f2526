"""What pods and containers have alike: the options of a role, and the variables of its processes."""

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter

from job_tracker.catalog.layers import overlay
from job_tracker.catalog.requested import RequestedPodOptions, requested
from job_tracker.catalog.syntax import amount
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.group import InstanceOptions, InstanceSpec
from job_tracker.domain.job import Job
from job_tracker.frameworks.job_environment import DEFAULTS, job_environment

HOME = "/home/training"
TEMPORARY = "/tmp"  # noqa: S108  # the instance's own
SHARED_MEMORY = "/dev/shm"  # noqa: S108  # likewise

Options = TypeVar("Options", bound=BaseModel)

_OF_TRAINERS = frozenset({"resources", "nproc_per_node"})
_NEUTRAL = frozenset(each.name for each in fields(InstanceOptions))
_INSTANCE = TypeAdapter(InstanceSpec)


def options_of_role(
    kind: type[Options],
    sent: InstanceOptions,
    *,
    configured: tuple[Options, Options],
    own: Any,
) -> Options:
    """Configuration for all, for the algorithm, then the request, each laid over the one before.

    What a request says of resources and processes is said of those that train. Other roles, which have
    options of their `own`, have what is configured, and resources of their own in place of the
    algorithm's, not on top. Raises ValueError for what does not fit together.
    """
    request = requested(sent)
    options = overlay(kind, *configured)
    if own is not None:
        options = options.model_copy(
            update={"nproc_per_node": 1, **({"resources": {}} if own.resources else {})}
        )
        request = RequestedPodOptions.model_validate(
            request.model_dump(exclude_unset=True, exclude=set(_OF_TRAINERS))
        )
    options = overlay(kind, options, request)
    if own is not None:
        options = overlay(kind, options, own)
    return options


def instance_of(options: BaseModel, *, image: str, command: tuple[str, ...]) -> InstanceSpec:
    """The options as a job keeps them: what all speak of by name, and the backend's own as JSON."""
    own = options.model_dump_json(exclude_unset=True, exclude=set(_NEUTRAL))
    neutral = options.model_dump(exclude_unset=True, include=set(_NEUTRAL))
    return _INSTANCE.validate_python({**neutral, "image": image, "command": command, "engine": own})


def options_of(kind: type[Options], instance: InstanceSpec) -> Options:
    """The options that `instance_of` was given. Raises ValueError if this version does not allow them."""
    own = kind.model_validate_json(instance.engine or "{}")
    neutral = requested(InstanceOptions(**{name: getattr(instance, name) for name in _NEUTRAL}))
    return overlay(kind, own, neutral)


def variables_alike(
    job: Job,
    more: Mapping[str, str],
    *,
    cpu: str | None,
    processes: int,
    secret: Collection[str],
) -> dict[str, str]:
    """The variables of every instance of a role, but for secrets, and those of its framework.

    `cpu` is how much of it an instance has at most, if that is known.
    """
    defaults = dict(DEFAULTS)
    if cpu is not None:
        # Libraries count the machine's cores, and would start a thread for each.
        defaults["OMP_NUM_THREADS"] = str(max(1, int(amount(cpu)) // processes))
    ours = {**job_environment(job), **more, "HOME": HOME, "TMPDIR": TEMPORARY}
    whole = {**defaults, **job.spec.group.environment, **ours}
    return {name: value for name, value in whole.items() if name not in secret}


def options_do_not_fit(error: ValueError) -> Diagnosis:
    """Why options that an earlier version accepted cannot be launched by this one."""
    return Diagnosis(
        category=Category.LAUNCH_FAILED,
        summary="The options that the job was accepted with cannot be read any more.",
        resolution="Another version of the service accepted them: submit the job again.",
        detail=str(error),
    )


def planned_otherwise() -> Diagnosis:
    """Why half a group that was begun with another configuration is not completed with this one."""
    return Diagnosis(
        category=Category.LAUNCH_FAILED,
        summary="The configuration, or the service, was changed while the group was being launched.",
        resolution="Nothing is wrong with the job: submit it again.",
        retryable=True,
    )
