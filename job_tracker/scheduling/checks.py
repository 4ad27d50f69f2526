"""Whether a gang can ever start, when nothing else runs."""

from collections.abc import Mapping, Sequence

from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.scheduling.capacity import FlavorCapacity
from job_tracker.scheduling.model import Flavor, Gang, Queue
from job_tracker.scheduling.quotas import QuotaTree, quota_rules
from job_tracker.scheduling.shapes import fewest_trainers, total, with_trainers


def fits_ever(queues: Mapping[str, Queue], flavors: Sequence[Flavor], gang: Gang) -> Diagnosis | None:
    """Return why a gang can never start, or None if it can, or if that is not known yet."""
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
            parts = with_trainers(gang.parts, trainers)
            fits = (
                tree.blocker(gang.queue, flavor.name, total(parts)) is None
                and capacity.fits_at(parts, 0.0, 0.0) is not None
            )
            low, high = (trainers, high) if fits else (low, trainers - 1)
        if low >= least:
            return None
        if low > largest:
            largest, where = low, flavor.name
    asked = ", ".join(f"{amount} {name}" for name, amount in total(with_trainers(gang.parts, least)).items())
    if not largest:
        return _diagnosis(
            f"The job needs {asked}, and not even one trainer of it fits in the capacity and the quota of"
            f" the queue {gang.queue}.",
            "Ask for less in each instance, or raise the capacity or the quota.",
        )
    return _diagnosis(
        f"The job needs {asked} for {least} trainers. The largest that fits in the capacity and the quota of"
        f" the queue {gang.queue} is {largest} trainers, on the flavor {where}.",
        f"Submit it with at most {largest} trainers, or raise the capacity or the quota.",
    )


def _diagnosis(summary: str, resolution: str) -> Diagnosis:
    return Diagnosis(category=Category.EXCEEDS_CAPACITY, summary=summary, resolution=resolution)
