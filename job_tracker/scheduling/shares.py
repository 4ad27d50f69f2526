"""The order among queues: those that have used less for their weight go first.

A queue's share is that of its dominant resource (Ghodsi et al., "Dominant Resource Fairness", NSDI 2011) of
decayed usage, over its weight. What a job is expected to use is charged when it starts, or is considered, so
that a burst of jobs cannot outrun what was measured. In a tree, this holds among the children of each node.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush

from job_tracker.scheduling.model import Flavor, Gang, Queue, Resources, Running, Usage
from job_tracker.scheduling.profile import needs_of

UNKNOWN_SECONDS = 600.0
"""What a job of unknown duration is charged for at its start."""


class Shares:
    """What each queue, and each of its parents, has used of the capacity, over its weight."""

    def __init__(
        self,
        flavors: Sequence[Flavor],
        queues: Mapping[str, Queue],
        usage: Mapping[str, Usage],
        running: Iterable[Running],
        now: float,
        half_life: float,
    ) -> None:
        self._queues = queues
        self._half_life = half_life
        period = half_life / math.log(2)  # full use for ever decays to this
        self._whole = {
            (flavor.name, resource): amount * period
            for flavor in flavors
            for resource, amount in flavor.capacity.items()
            if amount
        }
        self._used: dict[str, dict[tuple[str, str], float]] = {}
        self._share: dict[str, float] = {}
        for queue, used in usage.items():
            left = 0.5 ** (max(0.0, now - used.at) / half_life)
            for flavor, amounts in used.amounts.items():
                self._add(queue, flavor, amounts, left)
        for each in running:
            left = seconds_of(each.gang, half_life) - max(0.0, now - each.started_at)
            if left > 0:
                needs = needs_of(each.gang, each.allocation.trainers or each.gang.parts[0].count)
                self._add(each.gang.queue, each.allocation.flavor, needs, left)

    def of(self, queue: str) -> float:
        """Return the share of a queue: 0 is nothing, and 1 all, with weight 1."""
        return self._share.get(queue, 0.0)

    def charge(self, gang: Gang, flavor: str, needs: Resources) -> None:
        """Charge the gang's queue for what the gang is expected to use."""
        self._add(gang.queue, flavor, needs, seconds_of(gang, self._half_life))

    def parent(self, queue: str) -> str:
        """Return the parent of a queue; empty: the root."""
        known = self._queues.get(queue)
        return known.parent if known is not None and known.parent in self._queues else ""

    def _add(self, queue: str, flavor: str, amounts: Mapping[str, float], factor: float) -> None:
        while queue:
            used = self._used.setdefault(queue, {})
            for resource, amount in amounts.items():
                whole = self._whole.get((flavor, resource))
                if whole is not None:
                    key = (flavor, resource)
                    used[key] = used.get(key, 0.0) + amount * factor / whole
            known = self._queues.get(queue)
            self._share[queue] = max(used.values(), default=0.0) / (known.weight if known else 1.0)
            queue = self.parent(queue)


def seconds_of(gang: Gang, half_life: float) -> float:
    """Return for how long a gang is charged when it starts."""
    return min(gang.expected.median if gang.expected else UNKNOWN_SECONDS, half_life)


class FairOrder:
    """Yields gangs: at each node of the tree from the child with the smallest share."""

    def __init__(self, shares: Shares, gangs: Mapping[str, Iterator[Gang]]) -> None:
        """`gangs` are those of each queue, in the order within the queue."""
        self._shares = shares
        self._gangs = gangs
        self._children: dict[str, set[str]] = {}
        for queue in gangs:
            child = queue
            while child:
                parent = shares.parent(child)
                self._children.setdefault(parent, set()).add(child)
                child = parent
        self._heaps: dict[str, list[tuple[float, str]]] = {}
        for node, children in self._children.items():
            heap = [(shares.of(child), child) for child in children]
            heapify(heap)
            self._heaps[node] = heap

    def __iter__(self) -> Iterator[Gang]:
        """Yield all gangs. Charge each to `shares` before the next is taken."""
        while self._heaps.get(""):
            path: list[str] = []
            node = ""
            while heap := self._heaps.get(node):
                _, node = heappop(heap)
                path.append(node)
            gang = next(self._gangs[node], None) if node in self._gangs else None
            if gang is not None:
                yield gang
            for index in reversed(range(len(path))):
                child, parent = path[index], path[index - 1] if index else ""
                is_leaf = index == len(path) - 1
                if (is_leaf and gang is not None) or (not is_leaf and self._heaps[child]):
                    heappush(self._heaps[parent], (self._shares.of(child), child))
