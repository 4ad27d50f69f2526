"""Plans the Kubernetes objects of a job, with pure functions, so that tests can compare whole plans."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from job_tracker.backends.kubernetes import diagnosis, manifests
from job_tracker.backends.kubernetes.flavors import NodeFlavor
from job_tracker.backends.kubernetes.gangs import GroupMarks
from job_tracker.backends.kubernetes.labels import Manifest
from job_tracker.backends.kubernetes.options import FrozenPod, PodOptions
from job_tracker.backends.kubernetes.placement import affinity
from job_tracker.backends.kubernetes.settings import KubernetesSettings
from job_tracker.backends.shared.instances import (
    ENVIRONMENTS,
    common_variables,
    options_of,
    options_unreadable,
)
from job_tracker.backends.shared.labels import PLAN_DIGEST, RESTARTS
from job_tracker.backends.shared.requirements import in_image
from job_tracker.catalog.layers import overlay
from job_tracker.domain import naming
from job_tracker.domain.errors import LaunchFailed
from job_tracker.domain.group import GroupRef, InstanceSpec
from job_tracker.domain.job import Job
from job_tracker.frameworks import FRAMEWORKS, Address, GroupLayout
from job_tracker.frameworks.job_environment import TOKENS

_ALONE = "127.0.0.1"
_REPORT_ADDRESS = "REPORT_ADDRESS"
_OF_FETCH = (_REPORT_ADDRESS, "REPORT_CA", "REPORT_TOKEN")
"""The variables of the container that fetches the files of a program."""


@dataclass(frozen=True, slots=True)
class KubernetesPlan:
    """The objects of a group, complete except for the owner's uid, which the API server assigns.

    `pods` are in order of rank, the master first. The plan has a `service` if there are several instances, a
    `pod_group` if a gang scheduler needs a description of the group, and a `secret` if the pods must not
    contain the tokens. `digest` is a hash of the Service and the pods, and is written on each object. An
    object with the right name but another digest belongs to another plan. `was_launched` is true if the whole
    group existed at one time.
    """

    group: GroupRef
    instances: int
    was_launched: bool
    namespace: str
    service: Manifest | None
    secret: Manifest | None
    pod_group: Manifest | None
    pods: tuple[Manifest, ...]
    digest: str


def plan(
    job: Job,
    settings: KubernetesSettings,
    extra_environment: Mapping[str, str] = MappingProxyType({}),
    stop_grace: timedelta = timedelta(seconds=10),
    marks: GroupMarks | None = None,
) -> KubernetesPlan:
    """Return the plan of the job's current attempt.

    Pods get `marks` or, if that is None, the marks of `kubernetes.gang`. Raises LaunchFailed if the stored
    options are not readable or contradict the job's flavor, or if the configuration lacks something that the
    job needs.
    """
    spec = job.spec.group
    framework, roles = FRAMEWORKS[spec.framework], spec.role_of_ranks
    flavor = settings.flavors.get(job.allocation.flavor) if job.allocation else None
    of_role = {
        role: _on_flavor(_pod_options(spec.instance(role), settings.pod), flavor)
        for role in dict.fromkeys(roles)
    }
    nodes = job.machine_of_ranks
    places = [(job.allocation.flavor, node) for node in nodes] if job.allocation else []
    every_rank = framework.traits.addresses_every_rank or spec.elastic is not None
    plain = extra_environment
    secret = None
    if settings.token_secrets and (tokens := {name: plain[name] for name in sorted(TOKENS & plain.keys())}):
        secret = manifests.token_secret(job, settings.namespace, settings.instance, tokens)
        plain = {name: value for name, value in plain.items() if name not in tokens}
    fetch = {
        role: _fetch(job, settings, spec.instance(role).image, of_role[role], extra_environment, secret)
        for role in of_role
    }
    processes = max(each.nproc_per_node for each in of_role.values())
    layout = _layout(job, settings.master_port, processes, every_rank=every_rank)
    of_group = manifests.labels_of_group(job, settings.instance)
    pods = [
        manifests.pod(
            job,
            rank,
            role,
            name=naming.instance_name(job.group.name, rank, role),
            namespace=settings.namespace,
            instance=settings.instance,
            subdomain=naming.master_service_name(job.group.name) if layout.size > 1 else None,
            image=instance.image,
            command=_command(
                job,
                (
                    *in_image(job.spec.program, instance.image, ENVIRONMENTS, link_mode="hardlink"),
                    *framework.command(layout, instance.command),
                ),
            )
            if instance.command
            else (),
            environment=[
                *manifests.variables(
                    {
                        **common_variables(
                            job,
                            plain,
                            cpu=of_role[role].cpu_limit,
                            processes=of_role[role].nproc_per_node,
                            secret=of_role[role].secret_environment,
                        ),
                        **framework.environment(layout, rank),
                    }
                ),
                *manifests.secret_variables(of_role[role]),
                *(manifests.token_variables(secret) if secret else ()),
            ],
            grace_seconds=math.ceil(stop_grace.total_seconds()),
            options=of_role[role],
            overlay=of_role[role].pod_template,
            affinity=affinity(of_role[role].placement, settings.topology, of_group)
            if layout.size > 1 and not places  # with `places`, the nodes are chosen already
            else {},
            fetch=fetch[role],
            program_cache=settings.program_cache if fetch[role] else None,
            place=places[rank] if places else None,
        )
        for rank, role in enumerate(roles)
        for instance in [spec.instance(role)]
    ]
    marks = marks or settings.gang
    pods = [marks.of_group(pod, job, layout.size) for pod in pods]
    pod_group = marks.pod_group(
        manifests.pod_group_metadata(job, settings.namespace, settings.instance), layout.size
    )
    service = None
    if layout.size > 1:
        service = manifests.service(
            job,
            naming.master_service_name(job.group.name),
            settings.namespace,
            settings.instance,
            settings.master_port,
            every_rank=every_rank,
        )
    digest = _digest(service, pods)
    return KubernetesPlan(
        group=job.group,
        instances=layout.size,
        was_launched=job.was_launched,
        namespace=settings.namespace,
        service=_marked(service, digest) if service else None,
        secret=_marked(secret, digest) if secret else None,
        pod_group=_marked(pod_group, digest) if pod_group else None,
        pods=tuple(_marked(pod, digest, _restarts(job.restarts_of(rank))) for rank, pod in enumerate(pods)),
        digest=digest,
    )


def _command(job: Job, command: Sequence[str]) -> Sequence[str]:
    """Return the command for the manifest.

    The command of an algorithm may refer to variables as $(NAME), which Kubernetes replaces. In the command
    of an uploaded program, Kubernetes must replace nothing.
    """
    return manifests.literal(command) if job.spec.program else command


def _fetch(
    job: Job,
    settings: KubernetesSettings,
    image: str,
    options: PodOptions,
    extra: Mapping[str, str],
    secret: Manifest | None,
) -> Manifest | None:
    """Return the init container that fetches the files of an uploaded program; None for an algorithm."""
    if job.spec.program is None:
        return None
    if _REPORT_ADDRESS not in extra:
        raise LaunchFailed(diagnosis.NO_ADDRESS)
    hidden = manifests.token_variables(secret) if secret else []
    names = {each["name"] for each in hidden}
    plain = {name: extra[name] for name in _OF_FETCH if name in extra and name not in names}
    return manifests.fetch_container(
        job.spec.program.tree,
        image=settings.fetch_image or image,
        environment=[*manifests.variables(plain), *(each for each in hidden if each["name"] in _OF_FETCH)],
        options=options,
        cached=(job.spec.project, settings.program_cache_bytes) if settings.program_cache else None,
    )


def _pod_options(instance: InstanceSpec, of_all: PodOptions) -> FrozenPod:
    try:
        return overlay(FrozenPod, FrozenPod.of(of_all.identity, {}), options_of(FrozenPod, instance))
    except ValueError as error:
        raise LaunchFailed(options_unreadable(error)) from error


def _on_flavor(options: FrozenPod, flavor: NodeFlavor | None) -> FrozenPod:
    """Return the options, changed so that pods run on the flavor: they select its nodes, and tolerate
    the taints of these nodes.

    Raises LaunchFailed if the options select other nodes.
    """
    if flavor is None:
        return options
    for key, value in options.node_selector.items():
        if flavor.node_selector.get(key, value) != value:
            raise LaunchFailed(diagnosis.other_flavor(key, value, flavor.node_selector[key]))
    more = (each for each in flavor.tolerations if each not in options.tolerations)
    return options.model_copy(
        update={
            "node_selector": {**options.node_selector, **flavor.node_selector},
            "tolerations": (*options.tolerations, *more),
        }
    )


def _layout(job: Job, port: int, processes: int, *, every_rank: bool) -> GroupLayout:
    """Return the layout of the group, with the address of each rank.

    By default, the Service selects the master alone, so the master is found by the Service's name. If every
    rank needs an address, the Service selects all pods. The Service's name then resolves to all pods, so each
    rank is found by its pod's own name (POD.SERVICE). If the group has only one rank, its address is
    127.0.0.1.
    """
    roles, group = job.spec.group.role_of_ranks, job.group.name
    service = naming.master_service_name(group)
    hosts = [f"{naming.instance_name(group, rank, role)}.{service}" for rank, role in enumerate(roles)]
    if len(roles) == 1:
        hosts = [_ALONE]
    elif not every_rank:
        hosts[0] = service
    return GroupLayout(
        addresses=tuple(Address(host, port) for host in hosts),
        roles=roles,
        processes_per_instance=processes,
        elastic=job.spec.group.elastic,
    )


def _digest(service: Manifest | None, pods: list[dict[str, Any]]) -> str:
    text = json.dumps([service, *pods], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]


def _restarts(count: int) -> Mapping[str, str]:
    return {RESTARTS: str(count)} if count else {}


def _marked(
    manifest: Manifest, digest: str, more: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    metadata = manifest["metadata"]
    annotations = {**metadata["annotations"], PLAN_DIGEST: digest, **more}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}
