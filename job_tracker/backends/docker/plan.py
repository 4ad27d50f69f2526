"""The plan of a group: the requests that create its containers.

The functions have no I/O, so that tests can compare whole plans.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from job_tracker.backends.docker import requests
from job_tracker.backends.docker.environments import volume_of
from job_tracker.backends.docker.names import network_name
from job_tracker.backends.docker.options import ContainerOptions, Pull
from job_tracker.backends.docker.settings import DockerSettings
from job_tracker.backends.shared.instances import (
    ENVIRONMENTS,
    common_variables,
    options_of,
    options_unreadable,
)
from job_tracker.backends.shared.labels import (
    PLAN_DIGEST,
    RESTARTS,
    SUBMITTED_AT,
    group_annotations,
    group_labels,
    rank_labels,
)
from job_tracker.backends.shared.requirements import in_image
from job_tracker.catalog.layers import overlay
from job_tracker.catalog.syntax import CPU
from job_tracker.domain import naming
from job_tracker.domain.errors import LaunchFailed
from job_tracker.domain.group import GroupRef, InstanceSpec
from job_tracker.domain.job import Job
from job_tracker.frameworks import FRAMEWORKS, Address, GroupLayout

_ALONE = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """The name of one container, and the request that creates it, without the values of secrets."""

    name: str
    request: Mapping[str, Any]
    inherit: tuple[str, ...]
    """The names of variables that are copied from the environment of the service."""
    secret_files: Mapping[str, str]
    """The paths of the files with the values of variables, by the name of the variable."""
    restarts: int = 0
    """How often the container's rank was restarted, counting the restart that creates this container."""


@dataclass(frozen=True, slots=True)
class DockerPlan:
    """The plan of a group of containers. The values of secrets are read when a container is created.

    `containers` are in the order of ranks, the master first. `network` is the name of the group's network;
    None if the group has only one instance. `digest` identifies the plan, and is a label of each object: an
    object with one of our names and another digest belongs to another plan. `was_launched` says that an
    earlier launch was complete, so all containers have existed.
    """

    group: GroupRef
    instances: int
    was_launched: bool
    image: str
    pull: Pull
    network: str | None
    labels: Mapping[str, str]
    """Labels of the objects of the whole group."""
    containers: tuple[ContainerPlan, ...]
    digest: str
    program: tuple[str, str] | None = None
    """The project and the tree of an uploaded program; None for a configured algorithm."""

    @property
    def submission(self) -> str:
        """The time when the job was submitted: see Container."""
        return self.labels[SUBMITTED_AT]


def plan(
    job: Job,
    settings: DockerSettings,
    extra_environment: Mapping[str, str] = MappingProxyType({}),
    *,
    most_log: int,
) -> DockerPlan:
    """Return the plan of the job's current attempt.

    Raises LaunchFailed if this version of the service cannot read the job's options. The engine keeps
    `most_log` bytes of the log of each container.
    """
    spec = job.spec.group
    framework, roles = FRAMEWORKS[spec.framework], spec.role_of_ranks
    of_role = {role: _container_options(spec.instance(role), settings.container) for role in {*roles}}
    layout = _layout(job, settings.master_port, max(each.nproc_per_node for each in of_role.values()))
    labels = {**group_labels(job, settings.instance), **group_annotations(job)}
    kept = {"keep": settings.keep_requirements.total_seconds(), "most": settings.max_requirements}
    network = network_name(job.group.name) if layout.size > 1 else None
    environments = None
    if job.spec.program and job.spec.program.requirements:
        environments = volume_of(settings.instance, job.spec.project)
    containers = [
        ContainerPlan(
            name := naming.instance_name(job.group.name, rank, role),
            requests.container(
                name,
                image=instance.image,
                command=(
                    *in_image(job.spec.program, instance.image, ENVIRONMENTS, **kept),
                    *framework.command(layout, instance.command),
                )
                if instance.command
                else (),
                environment={
                    **common_variables(
                        job,
                        extra_environment,
                        cpu=of_role[role].resources.get(CPU),
                        processes=of_role[role].nproc_per_node,
                        secret=of_role[role].secret_names,
                    ),
                    **framework.environment(layout, rank),
                },
                labels={**labels, **rank_labels(rank, role)},
                network=network or settings.network,
                is_alone=network is None,
                extra_hosts=settings.extra_hosts,
                most_log=most_log,
                options=of_role[role],
                has_program=job.spec.program is not None,
                environments=environments,
            ),
            of_role[role].inherit,
            of_role[role].secret_files,
            job.restarts_of(rank),
        )
        for rank, role in enumerate(roles)
        for instance in [spec.instance(role)]
    ]
    digest = _digest(containers, settings.pull)
    return DockerPlan(
        group=job.group,
        instances=layout.size,
        was_launched=job.was_launched,
        image=spec.trainers.image,
        pull=settings.pull,
        network=network,
        labels={**labels, PLAN_DIGEST: digest},
        containers=tuple(_marked(each, digest) for each in containers),
        digest=digest,
        program=(job.spec.project, job.spec.program.tree) if job.spec.program else None,
    )


def _container_options(instance: InstanceSpec, of_all: ContainerOptions) -> ContainerOptions:
    try:
        return overlay(ContainerOptions, of_all.identity, options_of(ContainerOptions, instance))
    except ValueError as error:
        raise LaunchFailed(options_unreadable(error)) from error


def _layout(job: Job, port: int, processes: int) -> GroupLayout:
    """Return the addresses and roles of the ranks.

    A rank's address is the name of its container on the network; 127.0.0.1 if it is the only rank.
    """
    roles = job.spec.group.role_of_ranks
    hosts = [naming.instance_name(job.group.name, rank, role) for rank, role in enumerate(roles)]
    return GroupLayout(
        addresses=tuple(Address(host, port) for host in (hosts if len(hosts) > 1 else [_ALONE])),
        roles=roles,
        processes_per_instance=processes,
        elastic=job.spec.group.elastic,
    )


def _digest(containers: list[ContainerPlan], pull: Pull) -> str:
    whole = [(each.name, each.request, each.inherit, dict(each.secret_files)) for each in containers]
    text = json.dumps([pull, *whole], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]


def _marked(container: ContainerPlan, digest: str) -> ContainerPlan:
    """Return the container with the digest and the number of restarts as labels."""
    start = {RESTARTS: str(container.restarts)} if container.restarts else {}
    labels = {**container.request["Labels"], PLAN_DIGEST: digest, **start}
    return replace(container, request={**container.request, "Labels": labels})
