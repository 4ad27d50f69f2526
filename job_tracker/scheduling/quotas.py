"""The quotas of the tree of queues: what each may use, borrow and lend.

The rules are those of Kueue's cohorts (kueue.sigs.k8s.io, "Cohort"), with the whole capacity at the root. A
queue's guarantee, which it does not lend, counts for it alone; all else that it uses counts for its parent,
too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from job_tracker.scheduling.model import Flavor, Limit, Queue, Reason, Resources, Running
from job_tracker.scheduling.profile import needs_of

ROOT: Final = ""
_NONE: Final = Limit(nominal=0)

_Key = tuple[str, str, str]
"""Queue, flavor and resource."""


class Quotas:
    """What queues use of their quotas at one moment."""

    def __init__(
        self, flavors: Sequence[Flavor], queues: Mapping[str, Queue], running: Iterable[Running]
    ) -> None:
        self._queues = queues
        self._limited = {flavor.name: frozenset(flavor.capacity) for flavor in flavors}
        self._has_limits = any(queue.limits for queue in queues.values())
        self._nominal: dict[_Key, int] = {}
        self._used: dict[_Key, int] = {}
        self._jobs: dict[str, int] = {}
        self._closed: set[tuple[str, str]] = set()
        if self._has_limits:
            self._sum_up(flavors)
        for each in running:
            needs = needs_of(each.gang, each.allocation.trainers or each.gang.parts[0].count)
            self.take(each.gang.queue, each.allocation.flavor, needs)

    def problem(self, queue: str, flavor: str, needs: Resources) -> Reason | None:
        """Return why the queue may not start this now; None if it may."""
        for name in self._up_from(queue):
            most = self._queues[name].max_running
            if most is not None and self._jobs.get(name, 0) >= most:
                return Reason.MAX_RUNNING
        if not self._has_limits:
            return None
        for resource, amount in needs.items():
            if resource not in self._limited.get(flavor, ()) or not amount:
                continue
            key = (queue, flavor, resource)
            is_own = self._used.get(key, 0) + amount <= self._limit(queue, flavor, resource).nominal
            if amount > self._available(*key):
                return Reason.LENT if is_own else Reason.QUOTA
            if not is_own and (flavor, resource) in self._closed:
                return Reason.QUOTA
        return None

    def reclaim(self, flavor: str, needs: Resources) -> None:
        """Let no queue borrow more of what this gang waits for: it is its queue's own quota, and lent."""
        self._closed.update((flavor, resource) for resource, amount in needs.items() if amount)

    def fits_ever(self, queue: str, flavor: str, needs: Resources) -> bool:
        """Return whether the queue could start this if no other job ran."""
        if not self._has_limits:
            return True
        idle = Quotas.__new__(Quotas)
        idle._queues, idle._limited, idle._nominal = self._queues, self._limited, self._nominal
        idle._has_limits, idle._used, idle._jobs, idle._closed = True, {}, {}, set()
        return idle.problem(queue, flavor, needs) in (None, Reason.MAX_RUNNING)

    def take(self, queue: str, flavor: str, needs: Resources) -> None:
        """Count a job of the queue that starts or runs."""
        for name in self._up_from(queue):
            self._jobs[name] = self._jobs.get(name, 0) + 1
        if self._has_limits:
            for resource, amount in needs.items():
                self._use(queue, flavor, resource, amount)

    def _use(self, queue: str, flavor: str, resource: str, amount: int) -> None:
        for name in (*self._up_from(queue), ROOT):
            key = (name, flavor, resource)
            before = self._used.get(key, 0)
            self._used[key] = before + amount
            guaranteed = self._guaranteed(*key)
            amount = max(0, before + amount - guaranteed) - max(0, before - guaranteed)
            if not amount:
                return

    def _available(self, queue: str, flavor: str, resource: str) -> int:
        """Return how much more a queue may use now."""
        key = (queue, flavor, resource)
        used = self._used.get(key, 0)
        if queue == ROOT:
            return self._nominal.get(key, 0) - used
        guaranteed = self._guaranteed(*key)
        own = max(0, guaranteed - used)
        above = self._available(self._parent(queue), flavor, resource)
        borrow = self._limit(queue, flavor, resource).borrow
        if borrow is not None:
            most = self._nominal.get(key, 0) - guaranteed + borrow
            above = min(above, most - max(0, used - guaranteed))
        return own + above

    def _guaranteed(self, queue: str, flavor: str, resource: str) -> int:
        """Return what the queue never lends."""
        if queue == ROOT:
            return 0
        lend = self._limit(queue, flavor, resource).lend
        return 0 if lend is None else max(0, self._nominal.get((queue, flavor, resource), 0) - lend)

    def _limit(self, queue: str, flavor: str, resource: str) -> Limit:
        return self._queues[queue].limits.get(flavor, {}).get(resource, _NONE)

    def _parent(self, queue: str) -> str:
        parent = self._queues[queue].parent
        return parent if parent in self._queues else ROOT

    def _up_from(self, queue: str) -> Iterator[str]:
        """Return the queue and its parents, without the root."""
        while queue != ROOT and queue in self._queues:
            yield queue
            queue = self._parent(queue)

    def _sum_up(self, flavors: Sequence[Flavor]) -> None:
        """Work out the nominal quota of each node: its own, or what its children lend, if that is more."""
        children: dict[str, list[str]] = {}
        for name in self._queues:
            children.setdefault(self._parent(name), []).append(name)
        ordered = [ROOT]
        for name in ordered:  # it grows while it is read
            ordered.extend(children.get(name, ()))
        for flavor in flavors:
            for resource, capacity in flavor.capacity.items():
                for name in reversed(ordered):
                    below = sum(
                        self._nominal.get((child, flavor.name, resource), 0)
                        - self._guaranteed(child, flavor.name, resource)
                        for child in children.get(name, ())
                    )
                    if name != ROOT:
                        own = self._limit(name, flavor.name, resource).nominal
                        if total := max(own, below):
                            self._nominal[name, flavor.name, resource] = total
                        continue
                    kept = sum(
                        self._guaranteed(child, flavor.name, resource) for child in children.get(ROOT, ())
                    )
                    self._nominal[ROOT, flavor.name, resource] = capacity - kept
