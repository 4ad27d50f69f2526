"""Whether a job could ever start, if nothing else ran: on one flavor, within its queue's quotas."""

from collections.abc import Mapping
from dataclasses import dataclass

from job_tracker.scheduling.model import Gang, Limit
from job_tracker.scheduling.tree import Tree

Ceilings = Mapping[str, Mapping[str, int]]
"""The most that a queue can use, by flavor and resource. A resource that is missing is not limited."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a gang fits nowhere: on the flavor with room for the most trainers."""

    flavor: str
    resource: str
    needed: int
    most: int
    trainers: int
    """The largest number of trainers that would fit there; 0: not even one with the other roles."""


def misfit_of(tree: Tree, gang: Gang) -> Misfit | None:
    """Return why the gang can never start in its queue; None if it can."""
    found = [_misfit(flavor, most, gang) for flavor, most in ceilings_of(tree, gang.queue).items()]
    misfits = [each for each in found if each is not None]
    return max(misfits, key=lambda each: each.trainers) if misfits and len(misfits) == len(found) else None


def ceilings_of(tree: Tree, queue: str) -> Ceilings:
    """Return the most that a queue can use, if all that others may lend is free. It is computed once."""
    known = tree.ceilings.get(queue)
    if known is None:
        known = tree.ceilings[queue] = {
            flavor.name: {
                resource: _ceiling(tree, queue, flavor.name, resource, capacity)
                for resource, capacity in flavor.capacity.items()
            }
            for flavor in tree.pool.flavors
        }
    return known


def _misfit(flavor: str, most: Mapping[str, int], gang: Gang) -> Misfit | None:
    trainers, others = gang.parts[0], gang.parts[1:]
    wanted = gang.least or trainers.count
    resources = {name for part in gang.parts for name in part.each} & most.keys()
    besides = {name: sum(part.count * part.each.get(name, 0) for part in others) for name in resources}
    fitting = {
        name: max(0, most[name] - besides[name]) // each
        for name in resources
        if (each := trainers.each.get(name, 0))
    }
    # The tightest resource; by name if several are equally tight.
    for name in sorted(resources, key=lambda name: (fitting.get(name, wanted), name)):
        needed = wanted * trainers.each.get(name, 0) + besides[name]
        if needed > most[name]:
            enough = all(besides[each] <= most[each] for each in resources)
            return Misfit(flavor, name, needed, most[name], min(fitting.values()) if enough else 0)
    return None


def _ceiling(tree: Tree, queue: str, flavor: str, resource: str, capacity: int) -> int:
    path = [*tree.up_from(queue)][::-1]
    most = capacity
    for parent, name in zip(["", *path], path, strict=False):
        own = _limit(tree, name, flavor, resource)
        kept = sum(
            _kept(_limit(tree, each, flavor, resource))
            for each in tree.children.get(parent, ())
            if each != name
        )
        # What others never lend is not there for this one. Its own quota always is.
        most = max(most - kept, min(most, own.nominal if own else 0))
        if own is not None and own.borrow is not None:
            most = min(most, own.nominal + own.borrow)
    return most


def _limit(tree: Tree, queue: str, flavor: str, resource: str) -> Limit | None:
    return tree.queues[queue].limits.get(flavor, {}).get(resource)


def _kept(limit: Limit | None) -> int:
    """The part of a quota that is never lent."""
    return max(0, limit.nominal - limit.lend) if limit is not None and limit.lend is not None else 0
