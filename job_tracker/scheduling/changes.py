"""The changes that a remedy proposes: to a waiting job, to its queue, or to the capacity."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from job_tracker.domain.group import Place
from job_tracker.scheduling.gangs import listed_amounts
from job_tracker.scheduling.model import (
    INSTANCES,
    Expected,
    Flavor,
    Gang,
    Limit,
    Node,
    Part,
    Queue,
    Resources,
    Snapshot,
)
from job_tracker.scheduling.shapes import total, with_trainers


class Change(Protocol):
    """A change of a snapshot that may help one waiting gang."""

    @property
    def text(self) -> str:
        """The advice, as a sentence."""
        ...

    def of(self, snapshot: Snapshot, gang: Gang) -> Snapshot:
        """Return the snapshot after this change, which is made for `gang`."""
        ...


def applied(snapshot: Snapshot, gang: Gang, changes: Iterable[Change]) -> Snapshot:
    """Return the snapshot after all changes, one after the other."""
    for change in changes:
        snapshot = change.of(snapshot, snapshot.waiting.get(gang.job_id) or gang)
    return snapshot


def path_of(snapshot: Snapshot, name: str) -> list[Queue]:
    """Return the queue with this name, and its parents up to the top."""
    found: list[Queue] = []
    while name in snapshot.queues and all(node.name != name for node in found):
        found.append(snapshot.queues[name])
        name = snapshot.queues[name].parent
    return found


@dataclass(frozen=True, slots=True)
class FewerTrainers:
    """The job asks for fewer trainers."""

    trainers: int
    asked: int

    @property
    def text(self) -> str:
        return f"Submit it with {self.trainers} instead of {self.asked} instances (PARALLEL_INSTANCES)."

    def of(self, snapshot: Snapshot, gang: Gang) -> Snapshot:
        return _with(snapshot, replace(gang, parts=with_trainers(gang.parts, self.trainers), least=0))


@dataclass(frozen=True, slots=True)
class OtherFlavor:
    """The job asks for another flavor."""

    name: str

    @property
    def text(self) -> str:
        return f"Submit it for the flavor {self.name} (--flavor {self.name})."

    def of(self, snapshot: Snapshot, gang: Gang) -> Snapshot:
        return _with(snapshot, replace(gang, flavors=(self.name,)))


@dataclass(frozen=True, slots=True)
class Expect:
    """The job says how long it runs."""

    seconds: float

    @property
    def text(self) -> str:
        minutes = int(self.seconds // 60)
        return f"If it runs at most {minutes} min, say so: submit it with --expected {minutes}m."

    def of(self, snapshot: Snapshot, gang: Gang) -> Snapshot:
        seconds = self.seconds // 60 * 60
        return _with(snapshot, replace(gang, expected=Expected(median=seconds, high=seconds)))


@dataclass(frozen=True, slots=True)
class HigherPriority:
    """The job asks for a higher priority."""

    number: int
    name: str

    @property
    def text(self) -> str:
        return f"Submit it with the priority {self.name}."

    def of(self, snapshot: Snapshot, gang: Gang) -> Snapshot:
        return _with(snapshot, replace(gang, priority=self.number))


@dataclass(frozen=True, slots=True)
class Without:
    """Running jobs end."""

    job_ids: Collection[int]

    @property
    def text(self) -> str:
        return "Wait until other jobs end."

    def of(self, snapshot: Snapshot, gang: Gang) -> Snapshot:  # `gang` is in the protocol
        running = {job_id: run for job_id, run in snapshot.running.items() if job_id not in self.job_ids}
        stakes = {job_id: each for job_id, each in snapshot.stakes.items() if job_id not in self.job_ids}
        return replace(snapshot, running=running, stakes=stakes)


@dataclass(frozen=True, slots=True)
class MoreRunning:
    """A queue may run more jobs at once."""

    queue: str
    more: int | None
    """The number of additional jobs. None: any number."""

    @property
    def text(self) -> str:
        if self.more is None:
            return f"Remove max_running of the queue {self.queue}."
        return f"Raise max_running of the queue {self.queue} by {self.more}."

    def of(self, snapshot: Snapshot, gang: Gang) -> Snapshot:
        queue = snapshot.queues[self.queue]
        limit = None if self.more is None or queue.max_running is None else queue.max_running + self.more
        return _with_queue(snapshot, replace(queue, max_running=limit))


@dataclass(frozen=True, slots=True)
class MoreQuota:
    """A queue may borrow more of the quota that other queues do not use."""

    queue: str
    needs: Resources | None
    """The additional amount of each resource, in the planner's units, before it is multiplied by `times`.

    None: the whole unused quota of other queues.
    """
    times: int = 1

    @property
    def text(self) -> str:
        if self.needs is None:
            return f"Remove the limits on what the queue {self.queue} may borrow."
        more = listed_amounts({name: amount * self.times for name, amount in self.needs.items()})
        return f"Let the queue {self.queue} borrow {more} more."

    def of(self, snapshot: Snapshot, gang: Gang) -> Snapshot:
        queue = snapshot.queues[self.queue]
        limits = {
            flavor: {name: self._raised(name, limit) for name, limit in of_flavor.items()}
            for flavor, of_flavor in queue.limits.items()
        }
        return _with_queue(snapshot, replace(queue, limits=limits))

    def _raised(self, name: str, limit: Limit) -> Limit:
        if limit.borrow is None or self.needs is None:
            return replace(limit, borrow=None)
        return replace(limit, borrow=limit.borrow + self.needs.get(name, 0) * self.times)


@dataclass(frozen=True, slots=True)
class MoreCapacity:
    """A flavor has more capacity: on further machines, if its machines are known."""

    flavor: str
    more: Resources
    machines: tuple[Node, ...] = ()

    for_others: Resources = field(default_factory=dict)
    """The part of the addition that is meant for other waiting jobs and for guarantees.

    The advice does not name these amounts, since the caller may have no right to see the other jobs.
    """

    @classmethod
    def of_needs(cls, flavor: Flavor, parts: Sequence[Part], times: int) -> "MoreCapacity":
        """Return an addition to the flavor's capacity with room for `times` copies of the parts."""
        needs = _times(total(tuple(parts)), times)
        more = {name: amount for name, amount in needs.items() if amount and name in flavor.capacity}
        if not flavor.nodes:
            return cls(flavor.name, more)
        machines = [node for number, part in enumerate(parts) for node in _machines(number, part, times)]
        return cls(flavor.name, more, tuple(machines))

    @classmethod
    def for_all(cls, snapshot: Snapshot, flavor: Flavor, parts: Sequence[Part]) -> "MoreCapacity":
        """Return an addition that is enough for all waiting jobs, and for the guarantees of the queues."""
        own, others = cls.of_needs(flavor, parts, 1), dict[str, int]()
        gangs = (each for name in snapshot.waiting.queues() for each in snapshot.waiting.in_order(name))
        for gang in gangs:
            _add(others, total(gang.parts))
        guaranteed = (
            {name: limit.nominal for name, limit in queue.limits.get(flavor.name, {}).items()}
            for queue in snapshot.queues.values()
        )
        _add(others, *guaranteed)
        known = {name: amount for name, amount in others.items() if name in flavor.capacity}
        more = dict(own.more)
        _add(more, known)
        if not flavor.nodes:
            return replace(own, more=more, for_others=known)
        # Add one large machine for the needs of all jobs, instead of computing the machines that each job
        # needs.
        selector = dict(parts[0].where.selector) if parts else {}
        large = Node(name="new-others", capacity={INSTANCES: 1, **others}, labels=selector)
        return replace(own, more=more, machines=(*own.machines, large), for_others=others)

    @property
    def text(self) -> str:
        if self.machines:
            own = [node for node in self.machines if not self.for_others or node is not self.machines[-1]]
            kinds = " or ".join(sorted({_described(node) for node in own}))
            others = ", and machines for the jobs ahead of this one" if self.for_others else ""
            return f"Add machines to the flavor {self.flavor}: {len(own)} with {kinds}{others}."
        more = {name: amount - self.for_others.get(name, 0) for name, amount in self.more.items()}
        others = ", and by the needs of the jobs ahead of this one" if self.for_others else ""
        return f"Raise the capacity of the flavor {self.flavor} by {listed_amounts(more)}{others}."

    def of(self, snapshot: Snapshot, gang: Gang) -> Snapshot:
        def larger(flavor: Flavor) -> Flavor:
            if flavor.name != self.flavor:
                return flavor
            capacity = {name: amount + self.more.get(name, 0) for name, amount in flavor.capacity.items()}
            return replace(flavor, capacity=capacity, nodes=(*flavor.nodes, *self.machines))

        return replace(snapshot, flavors=tuple(larger(flavor) for flavor in snapshot.flavors))


@dataclass(frozen=True, slots=True)
class MakeRoom:
    """The machine of the service gets room for launches."""

    text: str = "Free memory or disk space on the machine of the service."

    def of(self, snapshot: Snapshot, gang: Gang) -> Snapshot:
        return replace(snapshot, is_open=True)


def _machines(number: int, part: Part, times: int) -> Iterator[Node]:
    """Yield a new machine for each instance of the part, `times` times.

    `number` is part of the machines' names.
    """
    each, apart = {INSTANCES: 1, **part.each}, part.where.apart
    for copy in range(part.count * times):
        name = f"new-{number}-{copy}"
        # All added machines are assumed to be in the same rack and in the same zone. But if the instances are
        # to run in different places of the kind `apart` (such as racks), each machine has its own place of
        # this kind, and of each smaller kind.
        places: dict[Place, str] = {
            place: name if place is apart or (apart is not None and apart in place.larger) else "new"
            for place in Place
            if place is not Place.MACHINE
        }
        yield Node(name=name, capacity=each, labels=dict(part.where.selector), places=places)


def _times(amounts: Resources, times: int) -> dict[str, int]:
    return {name: amount * times for name, amount in amounts.items()}


def _add(sums: dict[str, int], *amounts: Resources) -> None:
    for each in amounts:
        for name, amount in each.items():
            sums[name] = sums.get(name, 0) + amount


def _described(node: Node) -> str:
    labels = ", ".join(f"{key}={value}" for key, value in node.labels.items())
    return listed_amounts(node.capacity) + (f", labelled {labels}" if labels else "")


def _with_queue(snapshot: Snapshot, queue: Queue) -> Snapshot:
    return replace(snapshot, queues={**snapshot.queues, queue.name: queue})


def _with(snapshot: Snapshot, gang: Gang) -> Snapshot:
    promises = {job_id: promise for job_id, promise in snapshot.promises.items() if job_id != gang.job_id}
    return replace(snapshot, waiting=_Changed(snapshot, gang), promises=promises)


class _Changed:
    """The waiting gangs with one gang changed, without a copy of all gangs."""

    def __init__(self, snapshot: Snapshot, gang: Gang) -> None:
        self._waiting = snapshot.waiting
        self._gang = gang

    def queues(self) -> Iterable[str]:
        return self._waiting.queues()

    def in_order(self, queue: str) -> Iterator[Gang]:
        mine = self._gang
        pending = queue == mine.queue
        for gang in self._waiting.in_order(queue):
            if gang.job_id == mine.job_id:
                continue
            if pending and (-mine.priority, mine.job_id) < (-gang.priority, gang.job_id):
                pending = False
                yield mine
            yield gang
        if pending:
            yield mine

    def get(self, job_id: int) -> Gang | None:
        return self._gang if job_id == self._gang.job_id else self._waiting.get(job_id)

    def __len__(self) -> int:
        return len(self._waiting)
