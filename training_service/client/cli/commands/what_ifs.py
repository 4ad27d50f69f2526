"""Parses the what-ifs of trainctl simulate: --add FLAVOR=N and --quota QUEUE=[[FLAVOR/]RESOURCE=]N."""

import re
from collections.abc import Sequence
from dataclasses import replace

import typer

from job_tracker.scheduling.gangs import units
from job_tracker.scheduling.model import INSTANCES
from job_tracker.scheduling.simulation import trace
from job_tracker.scheduling.simulation.cluster import Changes, Cluster, Quota
from job_tracker.scheduling.simulation.spot import Spot
from training_service.client.cli.commands.assignments import parsed

_WHOLE = re.compile(r"[+-]?[0-9]{1,11}")


def changes(
    add: Sequence[str], quota: Sequence[str], preempt: bool = False, spot: Spot | None = None
) -> Changes:
    """Return the changes that the options ask for. Raises BadParameter if one is not valid."""
    most = trace.MOST_INSTANCES
    added = {flavor: _whole(flavor, text, -most, "--add") for flavor, text in parsed(add, "--add").items()}
    quotas = [_quota(queue, text) for queue, text in parsed(quota, "--quota").items()]
    return Changes(added, quotas, preempt, spot)


def resized(made: Changes, cluster: Cluster, capacity: int) -> Changes:
    """Return `made` with one more change, which gives the cluster `capacity` instances.

    Raises BadParameter if the cluster has several flavors or known machines, or if `made` already changes
    its capacity.
    """
    if len(cluster.flavors) != 1:
        names = ", ".join(flavor.name for flavor in cluster.flavors)
        raise typer.BadParameter(
            f"the service has the flavors {names}; use --add FLAVOR=N", param_hint="--capacity"
        )
    (flavor,) = cluster.flavors
    if flavor.nodes or flavor.name in made.add:
        raise typer.BadParameter(
            f"not allowed with {'known machines' if flavor.nodes else '--add'}; use --add "
            f"{flavor.name}=N alone",
            param_hint="--capacity",
        )
    more = capacity - flavor.capacity.get(INSTANCES, 0)
    return replace(made, add={**made.add, flavor.name: more}) if more else made


def _whole(name: str, text: str, least: int, option: str) -> int:
    number = int(text) if _WHOLE.fullmatch(text) else None
    if number is None or not least <= number <= trace.MOST_INSTANCES:
        raise typer.BadParameter(
            f"{name} is '{text}'; it must be a whole number from {least} to {trace.MOST_INSTANCES}",
            param_hint=option,
        )
    return number


def _quota(queue: str, text: str) -> Quota:
    """Return the quota of a queue. Raises BadParameter if the text is not N or [FLAVOR/]RESOURCE=N."""
    where, equals, amount = text.rpartition("=")
    if not equals:
        return Quota(queue, _whole(queue, text, 0, "--quota"))
    flavor, slash, resource = where.partition("/")
    if not slash or "." in flavor:  # a resource such as nvidia.com/gpu has a slash, too
        flavor, resource = "", where
    try:
        number = units(resource, amount)
    except ValueError as error:
        raise typer.BadParameter(f"{queue}: {error}", param_hint="--quota") from error
    return Quota(queue, number, flavor, resource or INSTANCES)
