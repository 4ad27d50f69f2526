"""Whose turn it is: the dominant share of decayed usage over weight."""

from collections.abc import Mapping, Sequence

from job_tracker.scheduling.model import Flavor, Queue, Resources, Usage


class Shares:
    """The shares of queues, with an entry penalty for what they hold and are about to get."""

    def __init__(
        self,
        flavors: Sequence[Flavor],
        queues: Mapping[str, Queue],
        usage: Mapping[str, Usage],
        now: float,
        half_life: float,
    ) -> None:
        """Start with the usage, decayed up to now."""
        self._capacity = {
            (flavor.name, name): amount
            for flavor in flavors
            for name, amount in flavor.capacity.items()
            if amount > 0
        }
        self._queues = queues
        self._used: dict[str, dict[tuple[str, str], float]] = {}
        for queue, past in usage.items():
            decay = 0.5 ** (max(0.0, now - past.at) / half_life)
            self._used[queue] = {
                (flavor, name): amount * decay / self._capacity[flavor, name]
                for flavor, amounts in past.amounts.items()
                for name, amount in amounts.items()
                if (flavor, name) in self._capacity
            }

    def charge(self, queue: str, flavor: str, needs: Resources, seconds: float) -> None:
        """Count needs as if they had been used for some time."""
        used = self._used.setdefault(queue, {})
        for name, amount in needs.items():
            capacity = self._capacity.get((flavor, name))
            if capacity is not None:
                used[flavor, name] = used.get((flavor, name), 0.0) + amount * seconds / capacity

    def of(self, queue: str) -> float:
        """Return a queue's largest share of any resource, over its weight."""
        used = self._used.get(queue)
        if not used:
            return 0.0
        known = self._queues.get(queue)
        return max(used.values()) / max(1e-9, 1.0 if known is None else known.weight)
