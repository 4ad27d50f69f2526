"""Computes the capacity that is in use after all stops that are under way, and whether a waiting gang then
fits.
"""

from collections.abc import Collection, Iterable

from job_tracker.scheduling.capacity import FlavorCapacity
from job_tracker.scheduling.leaving import leaving_of
from job_tracker.scheduling.model import Allocation, Gang, Part, Plan, Resources, Running, Snapshot
from job_tracker.scheduling.quotas import QuotaTree, quota_rules
from job_tracker.scheduling.running import resized, running_gangs
from job_tracker.scheduling.shapes import fewest_trainers, held_parts, total, with_trainers


class Standing:
    """The used capacity and quotas, as if each gang ran for ever.

    A job that is being stopped holds the trainers with which it continues at once (`Stake.goes_on`), or
    nothing. A job that the plan admits holds its allocation. A job in `Snapshot.claims` holds what it needs
    to start, if this fits.
    """

    def __init__(self, snapshot: Snapshot, plan: Plan, now: float) -> None:
        """Count the gangs that run, and those that the plan starts."""
        self._snapshot, self._now = snapshot, now
        self._rules = quota_rules(snapshot.queues, snapshot.flavors)
        self._tree = QuotaTree(self._rules)
        running = running_gangs(snapshot.running)
        self._capacity = {
            each.name: FlavorCapacity(each, now, running, for_ever=True) for each in snapshot.flavors
        }
        self._running: dict[str, int] = {}
        """For each queue, the number of jobs that run in it or in the queues below it."""
        self.started: set[int] = set()
        """The waiting jobs that `start` has counted as started."""
        for queue, by_flavor in running.held().items():
            for flavor, held in by_flavor.items():
                self._tree.use(queue, flavor, held.amounts)
                self._start(queue, held.gangs)
        for run in leaving_of(snapshot):
            trainers = snapshot.stakes[run.gang.job_id].goes_on
            self.leave(run, resized(run, trainers) if trainers else None)
        admitted = {each.job_id: each.allocation for each in plan.admitted}
        for job_id, allocation in admitted.items():
            if (gang := snapshot.waiting.get(job_id)) is not None:
                self.count(Running(gang, allocation, now))
        for job_id in snapshot.claims:
            gang = snapshot.waiting.get(job_id)
            if gang is not None and job_id not in admitted:
                self._start_if_it_fits(gang)

    @property
    def flavors(self) -> Collection[str]:
        """The names of the flavors."""
        return self._capacity.keys()

    def flavors_of(self, gang: Gang) -> list[str]:
        """Return the existing flavors that the gang may use."""
        return [name for name in gang.flavors or self._capacity if name in self._capacity]

    def fits(self, queue: str, flavor: str, parts: tuple[Part, ...], needs: Resources) -> bool:
        """Return whether a gang of the queue, with these parts and total needs, could start on the flavor."""
        return (
            self._tree.blocker(queue, flavor, needs) is None
            and not self.is_full(queue)
            and self._capacity[flavor].fits_at(parts, 0.0, self._now) is not None
        )

    def first_fit(
        self, queue: str, flavors: Iterable[str], parts: tuple[Part, ...], needs: Resources
    ) -> str | None:
        """Return the first of the flavors on which a gang of a queue could start; None if there is none."""
        return next((each for each in flavors if self.fits(queue, each, parts, needs)), None)

    def is_guaranteed(self, queue: str, flavor: str, needs: Resources, *, against: str | None = None) -> bool:
        """Return whether the guarantee of the queue, or of one of its parents, is enough for these needs in
        addition to the present use.

        Parents that the queue shares with the queue `against` do not count.
        """
        shared = self._rules.path(against) if against is not None else ()
        nodes = (node for node in self._rules.path(queue) if node not in shared)
        return any(self._tree.is_guaranteed(node, flavor, needs) for node in nodes)

    def borrows(self, queue: str, other: str, flavor: str, needs: Resources) -> bool:
        """Return whether the queue has borrowed quota that the queue `other` may take back for these needs.

        There are two conditions. The needs fit in the guarantee of `other`, or of one of its parents that is
        not also a parent of the queue. And the queue exceeds its own guarantee, as does each of its parents
        that is not also a parent of `other`.
        """
        path = self._rules.path(queue)
        for node in self._rules.path(other):
            if node in path:
                return False  # from here on, the two queues share the guarantee
            if self._tree.is_guaranteed(node, flavor, needs):
                shared = self._rules.path(node)
                apart = [each for each in path if each not in shared]
                if all(self._tree.exceeds(each, flavor, needs) for each in apart):
                    return True
        return False

    def count(self, run: Running, sign: int = 1) -> None:
        """Count a running gang. With sign -1, stop counting it."""
        flavor = run.allocation.flavor
        self._tree.use(run.gang.queue, flavor, total(held_parts(run.gang, run.allocation)), sign)
        self._start(run.gang.queue, sign)
        if flavor in self._capacity:
            self._capacity[flavor].count(run, self._now, sign)

    def _start(self, queue: str, gangs: int) -> None:
        for node in self._rules.path(queue):
            self._running[node] = self._running.get(node, 0) + gangs

    def leave(self, run: Running, shrunk: Running | None) -> None:
        """Count a running gang as stopped. If it continues in another size, count it as `shrunk`."""
        self.count(run, -1)
        if shrunk is not None:
            self.count(shrunk)

    def start(self, gang: Gang, flavor: str, trainers: int) -> None:
        """Count a gang as started with this number of trainers, if the flavor has room. Ignores quotas."""
        parts = with_trainers(gang.parts, trainers)
        slot = self._capacity[flavor].fits_at(parts, 0.0, self._now)
        if slot is not None:
            self.started.add(gang.job_id)
            allocation = Allocation(flavor=flavor, trainers=trainers, nodes=slot.nodes)
            self.count(Running(gang, allocation, self._now))

    def _start_if_it_fits(self, gang: Gang) -> None:
        fewest, flavors = fewest_trainers(gang), self.flavors_of(gang)
        wanted = [(fewest, flavors)]
        if (claim := self._snapshot.going_on.get(gang.job_id)) is not None:
            wanted.insert(0, (claim.trainers, [name for name in flavors if claim.flavor in ("", name)]))
        for trainers, names in wanted:
            parts = with_trainers(gang.parts, trainers)
            if (flavor := self.first_fit(gang.queue, names, parts, total(parts))) is not None:
                self.start(gang, flavor, trainers)
                return

    def is_full(self, queue: str) -> bool:
        """Return whether a queue, or one of its parents, runs as many jobs as it may."""
        for node in self._rules.path(queue):
            known = self._snapshot.queues.get(node)
            limit = known.max_running if known is not None else None
            if limit is not None and self._running.get(node, 0) >= limit:
                return True
        return False
