"""The tree of quotas, which decides how much a queue may still use, with borrowing and lending."""

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from job_tracker.scheduling.model import Flavor, Limit, Queue, Resources

Kind: TypeAlias = tuple[str, str]
"""A flavor, and a resource of it."""
_NONE: Mapping[str, Resources] = {}
_NO_LIMIT = Limit(nominal=0)


class QuotaRules:
    """The rules of the tree, without the present use.

    They stay the same as long as the queues and the flavors do not change.

    The guarantee of a node includes the guarantees of its children.
    """

    def __init__(self, queues: Mapping[str, Queue], flavors: Sequence[Flavor]) -> None:
        """Compute the quota of each node together with the nodes below, and the part that is not lent."""
        self.queues = queues
        self.capacities = _capacities(flavors)
        self.kinds: dict[str, list[str]] = {}
        """The resources of each flavor that some node limits."""
        self.guarantees: dict[str, dict[str, dict[str, int]]] = {}
        """The amounts that are guaranteed to a node and the nodes below it, by flavor, node and resource."""
        self.quota: dict[Kind, dict[str, int]] = {}
        """The quota of a node, without the parts that nodes below it keep for themselves."""
        self.kept: dict[Kind, dict[str, int]] = {}
        """The part of a node's quota that it does not lend. Nodes that lend everything are left out."""
        self.pool: dict[Kind, float] = {}
        """The capacity, without the amounts that nodes keep.

        Infinite if the nodes keep nothing: then only the capacity is the limit, and FlavorCapacity checks it.
        """
        self.max_running = {
            queue.name: queue.max_running for queue in queues.values() if queue.max_running is not None
        }
        self._paths: dict[str, tuple[str, ...]] = {}
        children: dict[str, list[str]] = {}
        for queue in queues.values():
            children.setdefault(self.parent(queue.name), []).append(queue.name)
            for flavor, limits in queue.limits.items():
                known = self.kinds.setdefault(flavor, [])
                known += [name for name in limits if name not in known]
                known.sort()  # sorted, so that the checks do not depend on the order of queues
        for flavor_name, names in self.kinds.items():
            for name in names:
                kind = (flavor_name, name)
                self.quota[kind], self.kept[kind] = {}, {}
                kept = sum(self._measure(children, child, kind) for child in children.get("", ()))
                whole = self.capacities.get(flavor_name, {}).get(name, math.inf)
                self.pool[kind] = whole - kept if kept else math.inf

    def path(self, queue: str) -> tuple[str, ...]:
        """Return a queue and the nodes above it, the root last."""
        known = self._paths.get(queue)
        if known is None:
            nodes = [queue]
            while nodes[-1]:
                above = self.parent(nodes[-1])
                nodes.append("" if above in nodes else above)
            known = self._paths[queue] = tuple(nodes)
        return known

    def parent(self, name: str) -> str:
        """Return the name of the node above this one. Empty: the root."""
        queue = self.queues.get(name)
        return queue.parent if queue is not None and queue.parent in self.queues else ""

    def limit(self, name: str, kind: Kind) -> Limit:
        """Return the limit that the queue or cohort declares for itself.

        If it declares none, return a limit that guarantees nothing and bounds nothing.
        """
        return self._declared(name, kind) or _NO_LIMIT

    def _declared(self, name: str, kind: Kind) -> Limit | None:
        queue = self.queues.get(name)
        return None if queue is None else queue.limits.get(kind[0], {}).get(kind[1])

    def _measure(self, children: dict[str, list[str]], name: str, kind: Kind) -> int:
        """Compute the guarantees, quotas and kept parts of a node and the nodes below it.

        Return the amount of the kind that these nodes do not lend.
        """
        below = children.get(name, ())
        kept = sum(self._measure(children, child, kind) for child in below)
        flavor, resource = kind
        guarantees = self.guarantees.setdefault(flavor, {})
        parts = [guarantees.get(child, {}).get(resource) for child in below]
        parts_sum = sum(part or 0 for part in parts)
        declared = self._declared(name, kind)
        guaranteed = max(parts_sum, 0 if declared is None else declared.nominal)
        if declared is not None or any(part is not None for part in parts):
            guarantees.setdefault(name, {})[resource] = guaranteed
        quota = guaranteed - parts_sum
        quota += sum(self.quota[kind][child] - self.kept[kind].get(child, 0) for child in below)
        self.quota[kind][name] = quota
        own = 0 if declared is None or declared.lend is None else max(0, quota - declared.lend)
        if own:
            self.kept[kind][name] = own
        return kept + own


_last: tuple[QuotaRules, ...] = ()
_KEPT = 8


def quota_rules(queues: Mapping[str, Queue], flavors: Sequence[Flavor]) -> QuotaRules:
    """Return the rules of the tree of these queues.

    The last rules are cached, since most passes have the same tree as the pass before. The queues are never
    changed in place: a change makes a new object.
    """
    global _last  # a tuple, so that threads that plan at the same time read a consistent value
    capacities = _capacities(flavors)
    for rules in _last:
        if rules.queues is queues and rules.capacities == capacities:
            return rules
    rules = QuotaRules(queues, flavors)
    _last = (rules, *_last[: _KEPT - 1])
    return rules


def _capacities(flavors: Sequence[Flavor]) -> dict[str, Resources]:
    return {flavor.name: flavor.capacity for flavor in flavors}


class QuotaTree:
    """The use of the queues of a tree. Only kinds that some queue limits are counted."""

    def __init__(self, rules: QuotaRules) -> None:
        """Start with nothing used."""
        self._rules = rules
        self._held: dict[Kind, dict[str, int]] = {kind: {} for kind in rules.pool}
        """The use of each node together with the nodes below it."""
        self._usage = {kind: {} if rules.kept[kind] else held for kind, held in self._held.items()}
        """The use as in `_held`, but without the use of quota that the nodes below do not lend."""

    def use(self, queue: str, flavor: str, needs: Resources, sign: int = 1) -> None:
        """Add the needs of a gang to the use of its queue. With sign -1, subtract them."""
        for name in self._rules.kinds.get(flavor, ()):
            amount = sign * needs.get(name, 0)
            if amount:
                self._add(queue, (flavor, name), amount)

    def blocker(self, queue: str, flavor: str, needs: Resources) -> str | None:
        """Return the lowest node, from the queue upwards, that does not allow the needs on the flavor now.

        If several resources are not allowed, the first of them decides. Empty: the root. None: all nodes
        allow the needs.
        """
        for name in self._rules.kinds.get(flavor, ()):
            need = needs.get(name, 0)
            if need:
                found = self._blocker(queue, (flavor, name), need)
                if found is not None:
                    return found
        return None

    def is_guaranteed(self, node: str, flavor: str, needs: Resources) -> bool:
        """Return whether the guarantee of a node is enough for the needs in addition to its present use.

        Resources that no quota limits do not count. If no quota limits any of the needs, return False.
        """
        guaranteed = self._rules.guarantees.get(flavor, _NONE).get(node)
        if guaranteed is None:
            return False
        is_any_needed = False
        for name in self._rules.kinds.get(flavor, ()):
            if need := needs.get(name):
                is_any_needed = True
                if self._held[flavor, name].get(node, 0) + need > guaranteed.get(name, 0):
                    return False
        return is_any_needed

    def exceeds(self, node: str, flavor: str, needs: Resources) -> bool:
        """Return whether a node uses more of a scarce resource than its guarantee.

        The use of the nodes below counts, too. A resource is scarce if less of it is free than `needs` asks
        for. If no resource is scarce, all needed resources are checked. This happens, for example, if enough
        is free in total, but not on one machine.
        """
        own = self._rules.guarantees.get(flavor, _NONE).get(node) or {}
        needed = [name for name in self._rules.kinds.get(flavor, ()) if needs.get(name)]
        short = [name for name in needed if needs[name] > self._free((flavor, name))]
        return any(self._held[flavor, name].get(node, 0) > own.get(name, 0) for name in short or needed)

    def _free(self, kind: Kind) -> float:
        """Return the amount of the kind that no queue uses or keeps for itself."""
        flavor, resource = kind
        capacity = self._rules.capacities.get(flavor, {}).get(resource, math.inf)
        free = capacity - self._held[kind].get("", 0)
        return min(free, self._rules.pool[kind] - self._usage[kind].get("", 0))

    def _add(self, queue: str, kind: Kind, amount: int) -> None:
        held, kept, usage = self._held[kind], self._rules.kept[kind], self._usage[kind]
        nodes = self._rules.path(queue)
        for node in nodes:
            held[node] = held.get(node, 0) + amount
        for node in nodes if kept else ():
            before, own = usage.get(node, 0), kept.get(node, 0)
            usage[node] = before + amount
            amount = max(0, before + amount - own) - max(0, before - own)

    def _blocker(self, queue: str, kind: Kind, need: int) -> str | None:
        all_kept, quota, usage = self._rules.kept[kind], self._rules.quota[kind], self._usage[kind]
        for node in self._rules.path(queue)[:-1]:
            used, kept = usage.get(node, 0), all_kept.get(node, 0)
            need -= max(0, kept - used)
            if need <= 0:
                return None
            borrow = self._rules.limit(node, kind).borrow
            if borrow is not None:
                room = quota.get(node, 0) - kept - max(0, used - kept) + borrow
                if need > room:
                    return node
        return "" if need > self._rules.pool[kind] - usage.get("", 0) else None
