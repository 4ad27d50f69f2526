"""The tree of quotas: what a queue may still use, with borrowing and lending."""

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from job_tracker.scheduling.model import Flavor, Limit, Queue, Resources

Kind: TypeAlias = tuple[str, str]
"""A flavor, and a resource of it."""
_NO_LIMIT = Limit(nominal=0)


class QuotaRules:
    """The tree without what is used: the same for as long as the queues and the flavors are."""

    def __init__(self, queues: Mapping[str, Queue], flavors: Sequence[Flavor]) -> None:
        """Work out what each node has with its children, and what it keeps for itself."""
        self.queues = queues
        self.flavors = flavors
        self.kinds: dict[str, list[str]] = {}
        self.quota: dict[tuple[str, Kind], int] = {}
        self.kept: dict[tuple[str, Kind], int] = {}
        self.pool: dict[Kind, float] = {}
        self._paths: dict[str, list[str]] = {}
        children: dict[str, list[str]] = {}
        for queue in queues.values():
            children.setdefault(self.parent(queue.name), []).append(queue.name)
            for flavor, limits in queue.limits.items():
                known = self.kinds.setdefault(flavor, [])
                known += [name for name in limits if name not in known]
        capacities = {flavor.name: flavor.capacity for flavor in flavors}
        for flavor_name, names in self.kinds.items():
            for name in names:
                kind = (flavor_name, name)
                self._measure(children, "", kind, set())
                whole = capacities.get(flavor_name, {}).get(name, math.inf)
                self.pool[kind] = whole - sum(self.kept[child, kind] for child in children.get("", ()))

    def path(self, queue: str) -> list[str]:
        """Return a queue and the nodes above it, the root last."""
        nodes = self._paths.get(queue)
        if nodes is None:
            nodes = self._paths[queue] = [queue]
            while nodes[-1]:
                above = self.parent(nodes[-1])
                nodes.append("" if above in nodes else above)
        return nodes

    def parent(self, name: str) -> str:
        """Return the node above. Empty: the root."""
        queue = self.queues.get(name)
        return queue.parent if queue is not None and queue.parent in self.queues else ""

    def limit(self, name: str, kind: Kind) -> Limit:
        """Return a node's own limit."""
        queue = self.queues.get(name)
        return _NO_LIMIT if queue is None else queue.limits.get(kind[0], {}).get(kind[1], _NO_LIMIT)

    def _measure(self, children: dict[str, list[str]], name: str, kind: Kind, seen: set[str]) -> None:
        seen.add(name)
        limit = self.limit(name, kind)
        quota = limit.nominal
        for child in children.get(name, ()):
            if child not in seen:
                self._measure(children, child, kind, seen)
                quota += self.quota[child, kind] - self.kept[child, kind]
        self.quota[name, kind] = quota
        self.kept[name, kind] = 0 if limit.lend is None else max(0, quota - limit.lend)


_last: list[QuotaRules] = []


def quota_rules(queues: Mapping[str, Queue], flavors: Sequence[Flavor]) -> QuotaRules:
    """Return the rules of a tree. Those of the last are kept, since passes follow each other on one tree.

    The arguments are never changed in place: a change is a new object.
    """
    for rules in _last:
        if rules.queues is queues and rules.flavors is flavors:
            return rules
    _last[:] = [QuotaRules(queues, flavors)]
    return _last[0]


class QuotaTree:
    """What the queues of a tree use. Only kinds that some queue limits are counted."""

    def __init__(self, rules: QuotaRules) -> None:
        """Start with nothing used."""
        self._rules = rules
        self._kinds = rules.kinds
        self._usage: dict[tuple[str, Kind], int] = {}

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
        known = self._rules.queues.get(queue)
        own = {} if known is None else known.limits.get(flavor, {})
        return bool(own) and all(
            self._usage.get((queue, (flavor, name)), 0) + needs.get(name, 0) <= limit.nominal
            for name, limit in own.items()
        )

    def _add(self, node: str, kind: Kind, amount: int) -> None:
        while node:
            before = self._usage.get((node, kind), 0)
            self._usage[node, kind] = before + amount
            kept = self._rules.kept.get((node, kind), 0)
            amount = max(0, before + amount - kept) - max(0, before - kept)
            node = self._rules.parent(node)
        self._usage["", kind] = self._usage.get(("", kind), 0) + amount

    def _blocker(self, node: str, kind: Kind, need: int) -> str | None:
        while node:
            used, kept = self._usage.get((node, kind), 0), self._rules.kept.get((node, kind), 0)
            need -= max(0, kept - used)
            if need <= 0:
                return None
            borrow = self._rules.limit(node, kind).borrow
            if borrow is not None:
                room = self._rules.quota.get((node, kind), 0) - kept - max(0, used - kept) + borrow
                if need > room:
                    return node
            node = self._rules.parent(node)
        return "" if need > self._rules.pool[kind] - self._usage.get(("", kind), 0) else None
