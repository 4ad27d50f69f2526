"""What pods and containers are planned by alike: the options of a role, and what its processes are told."""

from collections.abc import Collection, Mapping
from typing import TypeVar

from job_tracker.catalog import Algorithm, ContainerOptions, PodOptions, RequestedPodOptions
from job_tracker.catalog.layers import overlay
from job_tracker.catalog.pods import HOME, TEMPORARY
from job_tracker.catalog.syntax import amount
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.job import Job
from job_tracker.frameworks.job_environment import DEFAULTS, job_environment

Options = TypeVar("Options", ContainerOptions, PodOptions)

_OF_TRAINERS = frozenset({"resources", "nproc_per_node"})


def options_of_role(
    kind: type[Options], job: Job, *, configured: tuple[Options, Options], own: Options | None, command: bool
) -> Options:
    """Configuration for all, for the algorithm, then the request, each laid over the one before.

    What a request says of resources and processes is said of those that train. Other roles, which have
    options of their `own`, have what is configured, and resources of their own in place of the
    algorithm's, not on top. Raises ValueError for what no longer fits together.
    """
    sent = job.spec.pod_options
    options = overlay(kind, *configured)
    if own is not None:
        options = options.model_copy(
            update={"nproc_per_node": 1, **({"resources": {}} if own.resources else {})}
        )
        sent = {name: value for name, value in sent.items() if name not in _OF_TRAINERS}
    options = overlay(kind, options, RequestedPodOptions.model_validate(sent))
    if own is not None:
        options = overlay(kind, options, own)
    if options.nproc_per_node > 1 and not command:
        raise ValueError("nproc_per_node needs a command, which the launcher is to start")
    return options


def told_alike(
    job: Job,
    algorithm: Algorithm,
    more: Mapping[str, str],
    *,
    cpu: str | None,
    processes: int,
    secret: Collection[str],
) -> dict[str, str]:
    """What every instance of a role is told, but for secrets, and for what its framework says.

    `cpu` is how much of it an instance has at most, if that is known.
    """
    defaults = dict(DEFAULTS)
    if cpu is not None:
        # Libraries count the machine's cores, and would start a thread for each.
        defaults["OMP_NUM_THREADS"] = str(max(1, int(amount(cpu)) // processes))
    ours = {**job_environment(job), **more, "HOME": HOME, "TMPDIR": TEMPORARY}
    told = {**defaults, **algorithm.environment, **ours}
    return {name: value for name, value in told.items() if name not in secret}


def planned_otherwise() -> Diagnosis:
    """Why half a group that was begun with another configuration is not completed with this one."""
    return Diagnosis(
        category=Category.LAUNCH_FAILED,
        summary="The configuration, or the service, was changed while the group was being launched.",
        resolution="Nothing is wrong with the job: submit it again.",
        retryable=True,
    )
