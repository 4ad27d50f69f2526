"""One pass of the planner over the waiting jobs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from job_tracker.scheduling.capacity import NEVER, FlavorCapacity, Slot, Use
from job_tracker.scheduling.checks import flavors_for
from job_tracker.scheduling.going_on import Kept
from job_tracker.scheduling.growth import Growth
from job_tracker.scheduling.leaving import leaving_of, soon_gone
from job_tracker.scheduling.lengths import planned_length
from job_tracker.scheduling.model import (
    Admit,
    Allocation,
    Gang,
    GoingOn,
    Part,
    Plan,
    Promise,
    Reason,
    Reserve,
    Resources,
    Snapshot,
)
from job_tracker.scheduling.options import PlannerOptions
from job_tracker.scheduling.order import Order
from job_tracker.scheduling.overtaking import Blocker, Overtaking, without_promise
from job_tracker.scheduling.quotas import QuotaTree, quota_rules
from job_tracker.scheduling.shapes import (
    PartsKey,
    fewest_trainers,
    parts_key,
    total,
    with_trainers,
)
from job_tracker.scheduling.shares import Shares

_Shape = tuple[PartsKey, int, tuple[str, ...], float]
_EXACT = 1e-6

_NOT_RESERVED: Final = "Jobs that go first hold all the reservations."
_SHARE_MOVED: Final = "Queues that have used less for their weight go first."
_NO_ROOM: Final = "The machine of the service has no room for launches."


class Pass:
    """The state of one pass."""

    def __init__(self, snapshot: Snapshot, now: float, options: PlannerOptions) -> None:
        """Prepare a pass at the time `now`, and count the running gangs."""
        self._snapshot, self._now, self._options = snapshot, now, options
        self._rules = quota_rules(snapshot.queues, snapshot.flavors)
        self._tree = QuotaTree(self._rules)
        running = soon_gone(snapshot, now)
        self._shares = Shares(
            *(snapshot.flavors, snapshot.queues, snapshot.usage, now, options.half_life),
            *(running.held(), options.entry_penalty),
        )
        self._order = Order(snapshot, self._shares, self._tree)
        self._totals: dict[int, tuple[tuple[Part, ...], dict[str, int]]] = {}
        self._started: dict[str, int] = {}
        for queue, by_flavor in running.held().items():
            for flavor, held in by_flavor.items():
                self._tree.use(queue, flavor, held.amounts)
                self._start(queue, held.gangs)
        self._flavors = {f.name: FlavorCapacity(f, now, running) for f in snapshot.flavors}
        self._kept = Kept(snapshot, running, now)
        self._kept.hold(self._flavors, self._tree)
        self._growth = Growth(self._flavors, self._tree, self._kept, now)
        self._overrun = running.is_any_late(now)
        self._admitted: list[Admit] = []
        self._reserved: list[Reserve] = []
        self._overtaking = Overtaking(snapshot.promises, options.overtake_limit)
        self._earliest: dict[tuple[_Shape, str], float] = {}
        self._failed: set[tuple[str, _Shape]] = set()
        self._fitting: dict[tuple[str, _Shape], frozenset[str]] = {}
        self._keys: dict[int, PartsKey] = {}
        self._waits_in: set[str] = set()
        self._held = 0
        """The number of reservations so far. Gangs for which the capacity is too small do not count."""
        self._kept_for: set[str] = set()
        """The queues that have a waiting gang with a reservation."""
        self._to_keep = {
            job_id
            for job_id, promise in snapshot.promises.items()
            if promise.at < math.inf and snapshot.waiting.get(job_id) is not None
        }
        """The jobs with a promised start that this pass has not considered yet."""
        self._top: dict[str, int] = {}
        self._gone_first: dict[str, float] = {}
        """The latest promised start among the gangs that were considered so far, by queue.

        Infinite: at least one of these gangs had no promised start.
        """

    def run(self) -> Plan:
        """Make the pass, and return its plan."""
        self._look_at_claims()
        passed_over = 0
        for gang in self._order:
            if gang.job_id in self._claiming:
                continue
            if passed_over >= self._options.scan or self._is_done():
                break
            before = len(self._admitted)
            self._look_at(gang)
            passed_over += len(self._admitted) == before
        self._keep_counts()
        reserved = sorted(self._overtaking.counted(self._reserved), key=lambda reserve: reserve.promise.at)
        starts = [r.promise.at for r in reserved if self._now < r.promise.at < math.inf]
        return Plan(tuple(self._admitted), (), tuple(reserved), next_at=min(starts, default=None))

    def _keep_counts(self) -> None:
        """Keep the counts of overtaking for jobs that this pass did not consider.

        Otherwise, these counts would begin at 0 again, and the limit of overtaking would never be reached.
        """
        seen = {each.job_id for each in self._reserved} | {each.job_id for each in self._admitted}
        for job_id, old in sorted(self._snapshot.promises.items()):
            gang = self._snapshot.waiting.get(job_id)
            if old.overtaken and job_id not in seen and gang is not None:
                promise = Promise(math.inf, "", old.overtaken, old.is_put_off or old.at < math.inf)
                reason = Reason.ORDER if gang.queue in self._waits_in else Reason.SHARE
                moved = _NOT_RESERVED if old.at < math.inf else ""
                self._reserved.append(Reserve(job_id, promise, (reason,), moved))

    def _look_at_claims(self) -> None:
        """Consider the gangs with claims (see Snapshot.claims), before all other gangs.

        Gangs that are being stopped still hold their capacity. But while gangs with claims are considered,
        the quota of the gangs that are being stopped counts as free.
        """
        self._claiming = frozenset(self._snapshot.claims)
        leaving = leaving_of(self._snapshot) if self._claiming else []
        for sign in (-1, 1):
            for run in leaving:
                freed, gangs = self._kept.freed_by(run)
                self._tree.use(run.gang.queue, run.allocation.flavor, freed, sign)
                self._start(run.gang.queue, sign * gangs)
            for job_id in self._kept.in_order() if sign < 0 else ():
                gang = self._snapshot.waiting.get(job_id)
                if gang is not None:
                    self._look_at(gang)

    def _is_done(self) -> bool:
        if self._may_reserve() and not self._is_shut():
            return False
        return self._is_shut() or not (
            self._snapshot.is_open and any(flavor.has_free(self._now) for flavor in self._flavors.values())
        )

    def _may_reserve(self) -> bool:
        return self._held < self._options.reservations

    def _is_shut(self) -> bool:
        """Return whether all promised jobs were considered, and no flavor allows further overtaking."""
        return not self._to_keep and self._overtaking.is_shut(self._flavors)

    def _look_at(self, gang: Gang) -> None:
        self._to_keep.discard(gang.job_id)
        shape = self._shape(gang)
        goes_on = self._kept.starts(gang)
        if goes_on is None and (gang.queue, shape) in self._failed:
            self._waits_in.add(gang.queue)
            return
        full = self._full_node(gang.queue)
        if full is not None:
            if not self._may_reserve():
                self._order.close(gang.queue)
            elif self._flavors_for(gang):
                self._wait(gang, NEVER, "", (Reason.MAX_RUNNING,))
                self._order.close(gang.queue)
            else:
                self._wait(gang, NEVER, "", (Reason.LOST_CAPACITY,))
            return
        reason = Reason.CAPACITY
        scopes: dict[str, str] = {}
        best, best_flavor = NEVER, ""
        least = with_trainers(gang.parts, fewest_trainers(gang))
        names = gang.flavors or tuple(self._flavors)
        gone_at = self._kept.gone_at(gang.job_id)
        for name in self._kept.first_choice(names, self._flavors, gang, goes_on):
            flavor = self._flavors.get(name)
            if flavor is None:
                continue
            blocked = self._tree.blocker(gang.queue, name, self._total(least))
            if blocked is not None:
                scopes[name] = blocked
                continue
            length = planned_length(gang.expected)
            after = self._earliest.get((shape, name), self._now)
            if after <= self._now:
                slot = flavor.fits_at(least, length, self._now)
                if slot is not None:
                    if goes_on is None and self._overtaking.is_full(self._ahead(gang, name, least)):
                        reason = Reason.UNKNOWN_LENGTH if gang.expected is None else Reason.RESERVED
                        continue
                    later = self._kept.fits_soon(gang, goes_on, flavor)
                    if later is not None and goes_on is not None:
                        self._reserve(gang, name, later, reason, goes_on.trainers)
                        return
                    # If gangs are being stopped for this gang, it starts only once they are gone.
                    if self._snapshot.is_open and gone_at is None:
                        self._admit(gang, name, slot, goes_on)
                        return
                    reason = Reason.PREEMPTING if self._snapshot.is_open else Reason.ROOM
                else:
                    self._earliest[shape, name] = after = math.nextafter(self._now, math.inf)
            ahead = without_promise(self._ahead(gang, name, least))
            if self._may_reserve() and not self._overtaking.is_full(ahead):
                if gone_at is not None:
                    # Gangs are being stopped for this gang, and it starts once they are gone. Capacity that
                    # becomes free earlier is kept for jobs that continue in another size.
                    slot = flavor.find(least, length, max(after, gone_at))
                else:
                    slot = flavor.find(least, length, after)
                    self._earliest[shape, name] = slot.at
                if reason is Reason.CAPACITY:
                    reason = self._capacity_reason(flavor, least)
                if slot.at < best.at:
                    best, best_flavor = slot, name
        if not self._may_reserve():
            self._failed.add((gang.queue, shape))
            if gang.queue not in self._kept_for:
                # No reservation protects the queue's first job from being overtaken, so other jobs of the
                # queue may not start.
                self._order.close(gang.queue)
            return
        if best.at < math.inf:
            self._reserve(gang, best_flavor, best, reason)
        else:
            self._failed.add((gang.queue, shape))
            self._hold(gang, reason, scopes)

    def _admit(self, gang: Gang, name: str, slot: Slot, goes_on: GoingOn | None) -> None:
        """Let a gang start in the slot, with as many trainers as possible without delaying a promise."""
        trainers, slot = self._growth.most(gang, name, slot, goes_on, partial(self._promised_on, name))
        parts = with_trainers(gang.parts, trainers)
        self._flavors[name].take(parts, slot, planned_length(gang.expected))
        if goes_on is None:
            least = with_trainers(gang.parts, fewest_trainers(gang))
            self._overtaking.count(self._ahead(gang, name, least))
        self._count(gang.queue, name, parts)
        self._went_first(gang)
        trainers = 0 if parts == gang.parts else trainers
        allocation = Allocation(flavor=name, trainers=trainers, nodes=slot.nodes)
        self._admitted.append(Admit(gang.job_id, allocation))

    def _promised_on(self, flavor: str) -> Iterator[tuple[str, Use]]:
        """Yield the queue and the promised use of each gang to which a start on the flavor is promised.

        Gangs with claims, and gangs that this pass has already considered, are left out.
        """
        for job_id in self._to_keep:
            promise, gang = self._snapshot.promises[job_id], self._snapshot.waiting.get(job_id)
            if promise.flavor == flavor and gang is not None and not self._kept.is_to_come(job_id):
                least = with_trainers(gang.parts, fewest_trainers(gang))
                yield gang.queue, (least, promise.at, planned_length(gang.expected))

    def _reserve(self, gang: Gang, name: str, slot: Slot, reason: Reason, trainers: int = 0) -> None:
        least = with_trainers(gang.parts, trainers or fewest_trainers(gang))
        reasons = [reason]
        if self._is_guaranteed(gang.queue, name, self._total(least)):
            reasons.append(Reason.LENT)
        self._flavors[name].take(least, slot, planned_length(gang.expected))
        self._overtaking.count(without_promise(self._ahead(gang, name, least)))
        old = self._snapshot.promises.get(gang.job_id)
        if reason is Reason.ROOM and old is not None and old.at < slot.at:
            slot = Slot(old.at)  # only room for launches is missing, so the promise stays and is not put off
        promise = self._wait(gang, slot, name, tuple(reasons))
        if promise.is_put_off:
            # The start of this gang may be put off again and again. So the number of jobs of its queue that
            # may overtake it is limited.
            self._overtaking.add(gang.job_id, promise, [(gang.queue, name)])
        self._count(gang.queue, name, least)

    def _hold(self, gang: Gang, reason: Reason, scopes: Mapping[str, str]) -> None:
        """Record that a gang waits, for this reason, without a promised start.

        `scopes` has, by flavor, the node of the queue tree that forbids the gang's start now.
        """
        names = [name for name in gang.flavors or tuple(self._flavors) if name in self._flavors]
        if not all(self._flavors[name].flavor.is_known for name in names):
            self._wait(gang, NEVER, "", (Reason.UNKNOWN_CAPACITY,))
            return
        # No capacity is kept free for the gang on flavors on which it can never start.
        names = [name for name in names if name in self._flavors_for(gang)]
        if not names:
            self._wait(gang, NEVER, "", (Reason.LOST_CAPACITY,))
            return
        least = with_trainers(gang.parts, fewest_trainers(gang))
        needs = total(least)
        is_limited = all(name in scopes for name in names)
        if is_limited:
            reason = self._limit_reason(scopes, names, least)
        owned = next((name for name in names if self._is_guaranteed(gang.queue, name, needs)), None)
        reasons = (Reason.LENT,) if owned and is_limited else (reason, *((Reason.LENT,) if owned else ()))
        promise = self._wait(gang, NEVER, "", reasons)
        # The gang is a blocker at the nodes in `scopes`, but jobs that fit in the guaranteed quota of a lower
        # node do not count as overtaking it there. Jobs of the gang's own queue must always count, so the
        # gang is also a blocker in this queue.
        places = [(node, name) for name in names for node in (scopes.get(name, ""), gang.queue)]
        self._overtaking.add(gang.job_id, promise, places)
        if owned is not None:
            # Machines that borrowers release are kept for this gang, until it has enough of them.
            self._tree.use(gang.queue, owned, needs)
            self._flavors[owned].hold(least, self._now)

    def _limit_reason(
        self, scopes: Mapping[str, str], names: Sequence[str], parts: tuple[Part, ...]
    ) -> Reason:
        """Return the reason why no flavor of `names` has enough resources that the queue may use.

        `scopes` has, by flavor, the node of the queue tree that forbids the start. The root, which has no
        quota, is "".
        """
        if any(scopes[name] for name in names):
            return Reason.QUOTA
        is_free = any(self._flavors[name].fits_at(parts, 0.0, self._now) is not None for name in names)
        return Reason.KEPT if is_free else Reason.CAPACITY

    def _flavors_for(self, gang: Gang) -> frozenset[str]:
        """Return the flavors on which the gang can start if nothing else runs."""
        key = (gang.queue, self._shape(gang))
        known = self._fitting.get(key)
        if known is None:
            known = flavors_for(self._snapshot.queues, self._snapshot.flavors, gang)
            self._fitting[key] = known
        return known

    def _wait(self, gang: Gang, slot: Slot, flavor: str, reasons: tuple[Reason, ...]) -> Promise:
        if gang.queue in self._waits_in:
            reasons = (*reasons, Reason.ORDER)
        elif self._waits_in:
            reasons = (*reasons, Reason.SHARE)
        if self._kept.gone_at(gang.job_id) is not None and Reason.PREEMPTING not in reasons:
            reasons = (Reason.PREEMPTING, *reasons)
        self._waits_in.add(gang.queue)
        if Reason.LOST_CAPACITY not in reasons:
            self._held += 1
            self._kept_for.add(gang.queue)
        old = self._snapshot.promises.get(gang.job_id)
        moved = self._moved_because(gang, old.at) if old is not None and slot.at > old.at + _EXACT else ""
        self._went_first(gang)
        put_off = bool(moved) or (old is not None and old.is_put_off)
        promise = Promise(slot.at, flavor, 0 if old is None else old.overtaken, put_off)
        self._reserved.append(Reserve(gang.job_id, promise, reasons, moved))
        if old is None:
            self._top[gang.queue] = max(gang.priority, self._top.get(gang.queue, gang.priority))
        return promise

    def _went_first(self, gang: Gang) -> None:
        old = self._snapshot.promises.get(gang.job_id)
        at = math.inf if old is None else old.at
        self._gone_first[gang.queue] = max(at, self._gone_first.get(gang.queue, at))

    def _moved_because(self, gang: Gang, promised: float) -> str:
        if not self._snapshot.is_open:
            return _NO_ROOM
        if self._top.get(gang.queue, gang.priority) > gang.priority:
            return "A job with a higher priority goes first."
        if any(queue != gang.queue and at > promised for queue, at in self._gone_first.items()):
            return _SHARE_MOVED
        if self._overrun:
            return "A running job takes longer than expected."
        # If this pass has put off the start of a job ahead of this one, the reason also applies to this job.
        moved = (reserve.moved_because for reserve in self._reserved if reserve.moved_because)
        return next(moved, "The capacity, the quotas or the running jobs have changed.")

    def _capacity_reason(self, flavor: FlavorCapacity, parts: tuple[Part, ...]) -> Reason:
        if flavor.fits_at(parts, 0.0, self._now) is not None:
            return Reason.RESERVED
        return Reason.FRAGMENTED if flavor.is_fragmented(parts, self._now) else Reason.CAPACITY

    def _ahead(self, gang: Gang, flavor: str, least: tuple[Part, ...]) -> list[Blocker]:
        """Return the blockers that a gang would overtake on the flavor.

        A gang within the guaranteed quota of a node does not overtake blockers above this node.
        """
        return self._overtaking.ahead(gang.job_id, flavor, self._contested(gang, flavor, least))

    def _contested(self, gang: Gang, flavor: str, least: tuple[Part, ...]) -> Iterator[str]:
        for node in self._rules.path(gang.queue):
            yield node
            if self._tree.is_guaranteed(node, flavor, self._total(least)):
                return

    def _count(self, queue: str, flavor: str, parts: tuple[Part, ...]) -> None:
        needs = self._total(parts)
        self._tree.use(queue, flavor, needs)
        self._shares.charge(queue, flavor, needs, self._options.entry_penalty)
        self._start(queue, 1)

    def _start(self, queue: str, gangs: int) -> None:
        for node in self._rules.path(queue) if self._rules.max_running else ():
            self._started[node] = self._started.get(node, 0) + gangs

    def _is_guaranteed(self, queue: str, flavor: str, needs: Resources) -> bool:
        """Return whether the guarantee of a queue or of one of its parents is enough for the needs."""
        return any(self._tree.is_guaranteed(node, flavor, needs) for node in self._rules.path(queue))

    def _full_node(self, queue: str) -> str | None:
        limits = self._rules.max_running
        nodes = self._rules.path(queue) if limits else ()
        return next(
            (node for node in nodes if node in limits and self._started.get(node, 0) >= limits[node]), None
        )

    def _total(self, parts: tuple[Part, ...]) -> dict[str, int]:
        known = self._totals.get(id(parts))
        if known is None or known[0] is not parts:
            known = self._totals[id(parts)] = (parts, total(parts))
        return known[1]

    def _shape(self, gang: Gang) -> _Shape:
        key = self._keys.get(id(gang.parts))
        if key is None:
            key = self._keys[id(gang.parts)] = parts_key(gang.parts)
        return (key, gang.least, gang.flavors, planned_length(gang.expected))
