"""What is free on each machine, and which machines a gang gets."""

from collections.abc import Iterable, Sequence

from job_tracker.scheduling.model import Flavor, Gang, Resources, Running


class FreeMachines:
    """The free resources of a flavor's machines."""

    def __init__(self, flavor: Flavor, running: Iterable[Running]) -> None:
        """`running` are the gangs on this flavor. Machines that are gone are ignored."""
        self._free = {node.name: dict(node.capacity) for node in flavor.nodes}
        for each in running:
            self.take(each.gang, each.allocation.trainers or each.gang.parts[0].count, each.allocation.nodes)

    def place(self, gang: Gang, trainers: int) -> tuple[str, ...] | None:
        """Return the machine of each instance, in the order of ranks; None if they do not fit.

        The gang gets as few machines as a simple rule finds: first the machines on which most of its
        instances fit. Of several such machines, it gets the fullest.
        """
        free = {name: dict(amounts) for name, amounts in self._free.items()}
        placed: list[str] = []
        for index, part in enumerate(gang.parts):
            left = trainers if index == 0 else part.count
            room = {name: _times(amounts, part.each, left) for name, amounts in free.items()}
            for name in sorted(room, key=lambda name: (-room[name], _total(free[name]), name)):
                count = min(left, room[name])
                _use(free[name], part.each, count)
                placed.extend([name] * count)
                left -= count
                if not left:
                    break
            if left:
                return None
        return tuple(placed)

    def take(self, gang: Gang, trainers: int, nodes: Sequence[str]) -> None:
        """Use what a gang needs on its machines."""
        parts = [
            part
            for index, part in enumerate(gang.parts)
            for _ in range(trainers if index == 0 else part.count)
        ]
        for part, name in zip(parts, nodes, strict=False):
            if name in self._free:
                _use(self._free[name], part.each, 1)


def _times(free: Resources, each: Resources, at_most: int) -> int:
    """Return how many instances fit. A resource that the machine does not name is not limited."""
    return min(
        (max(0, free[name]) // amount for name, amount in each.items() if amount and name in free),
        default=at_most,
    )


def _use(free: dict[str, int], each: Resources, count: int) -> None:
    for name, amount in each.items():
        if name in free:
            free[name] -= count * amount


def _total(free: Resources) -> int:
    return sum(free.values())
