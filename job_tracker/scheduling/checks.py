"""Checks whether a gang can ever start, assuming that no other gang runs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.scheduling.capacity import FlavorCapacity
from job_tracker.scheduling.gangs import listed_amounts
from job_tracker.scheduling.model import Flavor, Gang, Queue
from job_tracker.scheduling.quotas import QuotaTree, quota_rules
from job_tracker.scheduling.shapes import fewest_trainers, total, with_trainers


def fits_ever(queues: Mapping[str, Queue], flavors: Sequence[Flavor], gang: Gang) -> Diagnosis | None:
    """Return why a gang can never start. None: it can start at some time, or this is not known yet."""
    known = [flavor for flavor in flavors if not gang.flavors or flavor.name in gang.flavors]
    if not known:
        names = ", ".join(flavor.name for flavor in flavors) or "none"
        return _diagnosis(
            f"The job asks for the flavor {' or '.join(gang.flavors) or 'default'}, which does not exist.",
            f"Ask for another flavor. There are: {names}.",
        )
    if not all(flavor.is_known for flavor in known):
        return None
    tree = QuotaTree(quota_rules(queues, flavors))
    least = fewest_trainers(gang)
    largest, where = 0, known[0].name
    for flavor in known:
        capacity = FlavorCapacity(flavor, 0.0)
        low, high = 0, least
        while low < high:
            trainers = (low + high + 1) // 2
            fits = _fits(tree, capacity, gang, trainers)
            low, high = (trainers, high) if fits else (low, trainers - 1)
        if low >= least:
            return None
        if low > largest:
            largest, where = low, flavor.name
    asked = listed_amounts(total(with_trainers(gang.parts, least)))
    others = sorted(flavors_for(queues, flavors, replace(gang, flavors=()))) if gang.flavors else []
    elsewhere = f", for the flavor {' or '.join(others)}" if others else ""
    if not largest:
        on = f", on the flavor {' or '.join(gang.flavors)}" if gang.flavors else ""
        return _diagnosis(
            f"The job needs {asked}, and not even one trainer of it fits in the capacity and the quota of"
            f" the queue {gang.queue}{on}.",
            f"Ask for less in each instance{elsewhere}, or raise the capacity or the quota.",
        )
    return _diagnosis(
        f"The job needs {asked} for {_trainers(least)}. The largest that fits in the capacity and the quota"
        f" of the queue {gang.queue} is {_trainers(largest)}, on the flavor {where}.",
        f"Submit it with at most {_trainers(largest)}{elsewhere}, or raise the capacity or the quota.",
    )


def flavors_for(queues: Mapping[str, Queue], flavors: Sequence[Flavor], gang: Gang) -> frozenset[str]:
    """Return the flavors on which a gang could start if no other gang ran.

    Of the gang's flavors, those whose machines have not been read yet are included, too.
    """
    tree = QuotaTree(quota_rules(queues, flavors))
    least = fewest_trainers(gang)
    return frozenset(
        flavor.name
        for flavor in flavors
        if not gang.flavors or flavor.name in gang.flavors
        if not flavor.is_known or _fits(tree, FlavorCapacity(flavor, 0.0), gang, least)
    )


def _fits(tree: QuotaTree, capacity: FlavorCapacity, gang: Gang, trainers: int) -> bool:
    parts = with_trainers(gang.parts, trainers)
    if tree.blocker(gang.queue, capacity.flavor.name, total(parts)) is not None:
        return False
    return capacity.fits_at(parts, 0.0, 0.0) is not None


def _trainers(number: int) -> str:
    return "1 trainer" if number == 1 else f"{number} trainers"


def _diagnosis(summary: str, resolution: str) -> Diagnosis:
    return Diagnosis(category=Category.EXCEEDS_CAPACITY, summary=summary, resolution=resolution)
