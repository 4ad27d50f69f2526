"""What a job becomes on an engine: pure, so that tests compare it whole."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from job_tracker import naming
from job_tracker.backends.docker import requests
from job_tracker.backends.docker.names import network_name
from job_tracker.backends.labels import PLAN_DIGEST, group_annotations, group_labels, rank_labels
from job_tracker.catalog import Algorithm, ContainerOptions, DockerRecipe, RequestedPodOptions
from job_tracker.catalog.containers import Pull
from job_tracker.catalog.pods import HOME, TEMPORARY
from job_tracker.catalog.syntax import CPU, amount
from job_tracker.diagnosis import Category, Diagnosis
from job_tracker.environment import job_environment
from job_tracker.errors import LaunchFailed
from job_tracker.frameworks import FRAMEWORKS, GroupLayout
from job_tracker.model import GroupRef, Job

_ALONE = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """What the backend needs to know besides the job: how all containers are.

    `network` is that of groups of one instance; larger ones have one of their own.
    """

    instance: str
    master_port: int = 12356
    network: str = "bridge"
    extra_hosts: Mapping[str, str] = field(default_factory=dict)
    pull: Pull = "missing"
    most_log: int = 100 << 20
    container: ContainerOptions = ContainerOptions()  # noqa: RUF009  # it never changes


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """One container: its name, and the request that makes it, but for secrets."""

    name: str
    request: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DockerPlan:
    """A group of containers as it will be made, but for the values of secrets, which are read for that.

    `containers` are by rank, the master first. `network` is the name of their own one, if they are
    several. `digest` stands for all of it, and is on each object: one with our name and another digest is
    not of this plan.
    """

    group: GroupRef
    instances: int
    image: str
    pull: Pull
    network: str | None
    labels: Mapping[str, str]
    """Of what is the group's as a whole."""
    containers: tuple[ContainerPlan, ...]
    inherit: tuple[str, ...]
    """Variables that are taken from the service's own environment."""
    secret_files: Mapping[str, str]
    """Variables whose values are in files."""
    digest: str


def plan(
    job: Job,
    algorithms: Mapping[str, Algorithm],
    options: PlanOptions,
    told: Mapping[str, str] = MappingProxyType({}),
) -> DockerPlan:
    """The plan of the job's current attempt. Raises LaunchFailed if the algorithm cannot run here.

    `told` is what its processes are told besides.
    """
    algorithm = algorithms.get(job.spec.algorithm)
    if algorithm is None or algorithm.docker is None:
        raise LaunchFailed(_algorithm_gone(job.spec.algorithm))
    framework, recipe = FRAMEWORKS[algorithm.framework], algorithm.docker
    how = _container_options(job, recipe, options.container)
    layout = _layout(job, options.master_port, how.nproc_per_node)
    alike = _environment(job, algorithm, how, told)
    labels = {**group_labels(job, options.instance), **group_annotations(job)}
    network = network_name(job.group.name) if layout.size > 1 else None
    containers = [
        ContainerPlan(
            name := naming.instance_name(job.group.name, rank),
            requests.container(
                name,
                image=recipe.image,
                command=framework.command(layout, recipe.command) if recipe.command else (),
                environment={**alike, **framework.environment(layout, rank)},
                labels={**labels, **rank_labels(rank)},
                network=network or options.network,
                is_alone=network is None,
                extra_hosts=options.extra_hosts,
                most_log=options.most_log,
                options=how,
            ),
        )
        for rank in range(layout.size)
    ]
    digest = _digest(containers, options.pull, how)
    return DockerPlan(
        group=job.group,
        instances=layout.size,
        image=recipe.image,
        pull=options.pull,
        network=network,
        labels={**labels, PLAN_DIGEST: digest},
        containers=tuple(_marked(each, digest) for each in containers),
        inherit=how.inherit,
        secret_files=how.secret_files,
        digest=digest,
    )


def _container_options(job: Job, recipe: DockerRecipe, defaults: ContainerOptions) -> ContainerOptions:
    """Configuration for all, for the algorithm, then the request, each laid over the one before."""
    try:
        requested = RequestedPodOptions.model_validate(job.spec.pod_options)
        options = defaults.merged(recipe).merged(requested)
        if options.nproc_per_node > 1 and not recipe.command:
            raise ValueError("nproc_per_node needs algorithms.NAME.docker.command")
    except ValueError as error:  # the configuration has changed since the job was accepted
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise LaunchFailed(_options_do_not_fit(job.spec.algorithm, reason)) from error
    return options


def _layout(job: Job, port: int, processes: int) -> GroupLayout:
    """Where each rank is found: by the name of its container, which its network's DNS knows."""
    size = job.spec.instances
    if size == 1:
        return GroupLayout((_ALONE,), port, processes)
    hosts = tuple(naming.instance_name(job.group.name, rank) for rank in range(size))
    return GroupLayout(hosts, port, processes)


def _environment(
    job: Job, algorithm: Algorithm, options: ContainerOptions, more: Mapping[str, str]
) -> dict[str, str]:
    """What every rank is told alike, but for secrets."""
    defaults = {"PYTHONUNBUFFERED": "1"}  # so that logs can be followed
    if CPU in options.resources:
        # Libraries count the machine's cores, and would start a thread for each.
        threads = int(amount(options.resources[CPU])) // options.nproc_per_node
        defaults["OMP_NUM_THREADS"] = str(max(1, threads))
    ours = {**job_environment(job), **more, "HOME": HOME, "TMPDIR": TEMPORARY}
    told = {**defaults, **algorithm.environment, **ours}
    return {name: value for name, value in told.items() if name not in options.secret_names}


def _digest(containers: list[ContainerPlan], pull: Pull, options: ContainerOptions) -> str:
    whole = [
        pull,
        options.inherit,
        dict(options.secret_files),
        [(each.name, each.request) for each in containers],
    ]
    text = json.dumps(whole, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]


def _marked(container: ContainerPlan, digest: str) -> ContainerPlan:
    labels = {**container.request["Labels"], PLAN_DIGEST: digest}
    return ContainerPlan(container.name, {**container.request, "Labels": labels})


def _algorithm_gone(name: str) -> Diagnosis:
    return Diagnosis(
        category=Category.ALGORITHM_GONE,
        summary=f"The algorithm {name!r} is no longer configured to run on a Docker engine.",
        resolution=f"Put algorithms.{name}.docker back into the configuration, and submit the job again.",
    )


def _options_do_not_fit(name: str, reason: str) -> Diagnosis:
    return Diagnosis(
        category=Category.LAUNCH_FAILED,
        summary="The options of the job's containers no longer fit the configuration.",
        resolution=f"Mend docker.container and algorithms.{name}.docker, and submit the job again.",
        detail=reason,
    )
