"""Computes the shares of queues: their decayed usage, divided by their weights.

The queue with the least share goes first. The usage of a queue is measured by its dominant resource: the
resource with the largest used part of the capacity.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from job_tracker.scheduling.model import Flavor, Queue, Resources, Usage
from job_tracker.scheduling.quotas import quota_rules
from job_tracker.scheduling.running import Held


def decay(seconds: float, half_life: float) -> tuple[float, float]:
    """Return the part of past usage that remains after `seconds`, and the decayed usage that one unit of a
    resource adds if it is held during this time.

    If the clock was set back, nothing decays, and nothing is added.
    """
    left = 0.5 ** (max(0.0, seconds) / half_life)
    return left, (1 - left) * half_life / math.log(2)  # the integral of the decaying usage


class Shares:
    """The shares of queues and their parents.

    Resources that a queue holds now, or is about to get, count for some more seconds, as a penalty.
    """

    def __init__(
        self,
        flavors: Sequence[Flavor],
        queues: Mapping[str, Queue],
        usage: Mapping[str, Usage],
        now: float,
        half_life: float,
        held: Mapping[str, Mapping[str, Held]] = MappingProxyType({}),
        penalty: float = 0.0,
    ) -> None:
        """Start with the past usage, decayed up to `now`.

        `held` has the resources that running gangs hold, by queue and flavor. They count as used since the
        time of the queue's usage, and for `penalty` seconds more.
        """
        self._capacity = {
            (flavor.name, name): amount
            for flavor in flavors
            for name, amount in flavor.capacity.items()
            if amount > 0
        }
        self._queues = queues
        self._path = quota_rules(queues, flavors).path
        self._used: dict[tuple[str, str], dict[str, float]] = {kind: {} for kind in self._capacity}
        added: dict[float, tuple[float, float]] = {}
        for queue, past in usage.items():
            if past.at not in added:
                added[past.at] = decay(now - past.at, half_life)
            for flavor, amounts in past.amounts.items():
                self.charge(queue, flavor, amounts, added[past.at][0])
        for queue, by_flavor in held.items():
            known = usage.get(queue)
            seconds = penalty if known is None else penalty + added[known.at][1]
            for flavor, each in by_flavor.items():
                self.charge(queue, flavor, each.amounts, seconds)

    def charge(self, queue: str, flavor: str, needs: Mapping[str, float] | Resources, seconds: float) -> None:
        """Count the needs as if the queue had used them on the flavor for `seconds`."""
        for name, amount in needs.items():
            used = self._used.get((flavor, name))
            if used is not None:
                share = amount * seconds / self._capacity[flavor, name]
                for node in self._path(queue):
                    used[node] = used.get(node, 0.0) + share

    def of(self, node: str) -> float:
        """Return the largest share of a resource that a node and the queues below it have, divided by the
        node's weight.
        """
        share = 0.0
        for used in self._used.values():
            share = max(share, used.get(node, 0.0))
        known = self._queues.get(node)
        return share / max(1e-9, 1.0 if known is None else known.weight)
