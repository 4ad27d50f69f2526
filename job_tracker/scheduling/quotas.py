"""The tree of quotas: what a queue may still use, with borrowing and lending."""

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from job_tracker.scheduling.model import Flavor, Limit, Queue, Resources

Kind: TypeAlias = tuple[str, str]
"""A flavor, and a resource of it."""
_NO_LIMIT = Limit(nominal=0)


class QuotaTree:
    """What the queues of a tree use. Only kinds that some queue limits are counted."""

    def __init__(self, queues: Mapping[str, Queue], flavors: Sequence[Flavor]) -> None:
        """Start with nothing used."""
        self._queues = queues
        self._kinds: dict[str, list[str]] = {}
        children: dict[str, list[str]] = {}
        for queue in queues.values():
            children.setdefault(self._parent(queue.name), []).append(queue.name)
            for flavor, limits in queue.limits.items():
                known = self._kinds.setdefault(flavor, [])
                known += [name for name in limits if name not in known]
        self._usage: dict[tuple[str, Kind], int] = {}
        self._quota: dict[tuple[str, Kind], int] = {}
        self._kept: dict[tuple[str, Kind], int] = {}
        self._pool: dict[Kind, float] = {}
        capacities = {flavor.name: flavor.capacity for flavor in flavors}
        for flavor, names in self._kinds.items():
            for name in names:
                kind = (flavor, name)
                self._measure(children, "", kind, set())
                whole = capacities.get(flavor, {}).get(name, math.inf)
                kept = sum(self._kept[child, kind] for child in children.get("", ()))
                self._pool[kind] = whole - kept

    def use(self, queue: str, flavor: str, needs: Resources, sign: int = 1) -> None:
        """Count what a gang of a queue uses. Sign -1 takes it back."""
        for name in self._kinds.get(flavor, ()):
            amount = sign * needs.get(name, 0)
            if amount:
                self._add(queue, (flavor, name), amount)

    def blocker(self, queue: str, flavor: str, needs: Resources) -> str | None:
        """Return the lowest node of the tree that forbids the needs now. Empty: the root. None: none does."""
        for name in self._kinds.get(flavor, ()):
            need = needs.get(name, 0)
            if need:
                found = self._blocker(queue, (flavor, name), need)
                if found is not None:
                    return found
        return None

    def is_guaranteed(self, queue: str, flavor: str, needs: Resources) -> bool:
        """Return whether a queue's own quota is enough for the needs."""
        own = self._queues[queue].limits.get(flavor, {}) if queue in self._queues else {}
        return bool(own) and all(
            self._usage.get((queue, (flavor, name)), 0) + needs.get(name, 0) <= limit.nominal
            for name, limit in own.items()
        )

    def path(self, queue: str) -> list[str]:
        """Return a queue and the nodes above it, the root last."""
        nodes = [queue]
        while nodes[-1]:
            above = self._parent(nodes[-1])
            nodes.append("" if above in nodes else above)
        return nodes

    def _parent(self, name: str) -> str:
        queue = self._queues.get(name)
        return queue.parent if queue is not None and queue.parent in self._queues else ""

    def _limit(self, name: str, kind: Kind) -> Limit:
        queue = self._queues.get(name)
        return _NO_LIMIT if queue is None else queue.limits.get(kind[0], {}).get(kind[1], _NO_LIMIT)

    def _measure(self, children: dict[str, list[str]], name: str, kind: Kind, seen: set[str]) -> None:
        seen.add(name)
        quota = self._limit(name, kind).nominal
        for child in children.get(name, ()):
            if child not in seen:
                self._measure(children, child, kind, seen)
                quota += self._quota[child, kind] - self._kept[child, kind]
        lend = self._limit(name, kind).lend
        self._quota[name, kind] = quota
        self._kept[name, kind] = 0 if lend is None else max(0, quota - lend)

    def _add(self, node: str, kind: Kind, amount: int) -> None:
        while node:
            before = self._usage.get((node, kind), 0)
            self._usage[node, kind] = before + amount
            kept = self._kept.get((node, kind), 0)
            amount = max(0, before + amount - kept) - max(0, before - kept)
            node = self._parent(node)
        self._usage["", kind] = self._usage.get(("", kind), 0) + amount

    def _blocker(self, node: str, kind: Kind, need: int) -> str | None:
        while node:
            used, kept = self._usage.get((node, kind), 0), self._kept.get((node, kind), 0)
            need -= max(0, kept - used)
            if need <= 0:
                return None
            borrow = self._limit(node, kind).borrow
            if borrow is not None:
                room = self._quota.get((node, kind), 0) - kept - max(0, used - kept) + borrow
                if need > room:
                    return node
            node = self._parent(node)
        return "" if need > self._pool[kind] - self._usage.get(("", kind), 0) else None
