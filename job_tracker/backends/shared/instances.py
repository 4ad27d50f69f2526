"""Options and variables that pods and containers have in common."""

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
WORK = f"{HOME}/work"
"""The folder with the files of an uploaded program. It is the program's working directory, and its HOME."""
ENVIRONMENTS = f"{HOME}/environments"
"""The folder with the Python environments of requirements files."""
TEMPORARY = "/tmp"  # noqa: S108  # private to the instance
SHARED_MEMORY = "/dev/shm"  # noqa: S108  # private to the instance

Options = TypeVar("Options", bound=BaseModel)

_OF_TRAINING_ROLES = frozenset({"resources", "nproc_per_node"})
_COMMON_OPTIONS = frozenset(each.name for each in fields(InstanceOptions))
_INSTANCE = TypeAdapter(InstanceSpec)


def options_of_role(
    kind: type[Options],
    sent: InstanceOptions,
    *,
    configured: tuple[Options, Options],
    own: Any,
) -> Options:
    """Return the options of a role, merged from `configured`, `sent` and `own`; later ones override earlier
    ones.

    `configured` are the options for all algorithms, and those for the role's algorithm. `sent` are the
    options of a request. `own` are the options of a role that does not train; None for a role that trains. A
    role that does not train has one process unless `own` says otherwise, and gets neither resources nor
    processes from `sent`. If `own` has resources, they replace all resources of the algorithm. Raises
    ValueError if options contradict each other.
    """
    request = requested(sent)
    options = overlay(kind, *configured)
    if own is not None:
        options = options.model_copy(
            update={"nproc_per_node": 1, **({"resources": {}} if own.resources else {})}
        )
        request = RequestedPodOptions.model_validate(
            request.model_dump(exclude_unset=True, exclude=set(_OF_TRAINING_ROLES))
        )
    options = overlay(kind, options, request)
    if own is not None:
        options = overlay(kind, options, own)
    return options


def instance_of(options: BaseModel, *, image: str, command: tuple[str, ...]) -> InstanceSpec:
    """Return the options in the form in which a job stores them.

    Each option that all backends know has its own field. The others are JSON in `engine`.
    """
    own = options.model_dump_json(exclude_unset=True, exclude=set(_COMMON_OPTIONS))
    common = options.model_dump(exclude_unset=True, include=set(_COMMON_OPTIONS))
    return _INSTANCE.validate_python({**common, "image": image, "command": command, "engine": own})


def options_of(kind: type[Options], instance: InstanceSpec) -> Options:
    """Return the options that `instance_of` has stored.

    Raises ValueError if this version of the service does not allow them.
    """
    own = kind.model_validate_json(instance.engine or "{}")
    common = requested(InstanceOptions(**{name: getattr(instance, name) for name in _COMMON_OPTIONS}))
    return overlay(kind, own, common)


def common_variables(
    job: Job,
    more: Mapping[str, str],
    *,
    cpu: str | None,
    processes: int,
    secret: Collection[str],
) -> dict[str, str]:
    """Return the variables of the instances of a role, except the variables of the framework.

    Variables whose names are in `secret` are left out. `more` are further variables of the service. `cpu` is
    the CPU limit of an instance; None if it is unknown. `processes` is the number of training processes that
    share this limit.
    """
    defaults = dict(DEFAULTS)
    if cpu is not None:
        # Without this variable, libraries start a thread for each core of the machine.
        defaults["OMP_NUM_THREADS"] = str(max(1, int(amount(cpu)) // processes))
    home = WORK if job.spec.program else HOME
    ours = {**job_environment(job), **more, "HOME": home, "TMPDIR": TEMPORARY}
    whole = {**defaults, **job.spec.group.environment, **ours}
    return {name: value for name, value in whole.items() if name not in secret}


def options_unreadable(error: ValueError) -> Diagnosis:
    """Diagnose that this version of the service cannot read the job's options, stored by another version."""
    return Diagnosis(
        category=Category.LAUNCH_FAILED,
        summary="The stored options of the job cannot be read.",
        resolution="Another version of the service stored them. Submit the job again.",
        detail=str(error),
    )


def configuration_changed() -> Diagnosis:
    """Diagnose that the configuration or the service's version has changed since the launch began."""
    return Diagnosis(
        category=Category.LAUNCH_FAILED,
        summary="The configuration or the version of the service changed while the group was being launched.",
        resolution="The job is not the cause. Submit it again.",
        retryable=True,
    )
