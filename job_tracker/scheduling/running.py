"""The running gangs in memory, and their total use, which is updated with each change."""

import math
from abc import abstractmethod
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass, field, replace
from operator import itemgetter

from job_tracker.scheduling.lengths import planned_end, planned_length
from job_tracker.scheduling.model import INSTANCES, Resources, Running
from job_tracker.scheduling.profile import Return, in_order
from job_tracker.scheduling.shapes import held_parts, total


@dataclass(slots=True)
class Held:
    """The resources that gangs hold together."""

    gangs: int = 0
    amounts: dict[str, int] = field(default_factory=dict)
    """The amounts by resource."""

    def count(self, gangs: int, needs: Mapping[str, int]) -> None:
        """Add a gang with these needs (`gangs` is 1), or remove one (-1)."""
        self.gangs += gangs
        for name, amount in needs.items():
            self.amounts[name] = self.amounts.get(name, 0) + gangs * amount


@dataclass(slots=True)
class OfQueue(Held):
    """The gangs of a queue that run on one flavor."""

    runs: dict[int, Running] = field(default_factory=dict)
    priorities: dict[int, int] = field(default_factory=dict)
    """The number of gangs by priority."""


@dataclass(slots=True)
class _End:
    """The gangs that are planned to end at one time."""

    held: Held = field(default_factory=Held)
    jobs: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _OnFlavor:
    held: Held = field(default_factory=Held)
    ends: dict[float, _End] = field(default_factory=dict)
    returns: list[Return] = field(default_factory=list)
    """The resources that are released at `ends`, in order. Gangs of unknown length are left out."""
    machines: dict[str, dict[int, dict[str, int]]] = field(default_factory=dict)
    """The amounts that gangs hold on machines, by machine and job."""


class Gangs(Mapping[int, Running]):
    """Running gangs by job, with their total use."""

    @abstractmethod
    def held(self) -> Mapping[str, Mapping[str, Held]]:
        """Return the resources that gangs hold, by queue and flavor."""

    @abstractmethod
    def held_on(self, flavor: str) -> Mapping[str, int]:
        """Return the amounts that gangs hold on a flavor, by resource."""

    @abstractmethod
    def on_machines(self, flavor: str) -> Mapping[str, Mapping[int, Resources]]:
        """Return the amounts that gangs hold on the machines of a flavor, by machine and job."""

    @abstractmethod
    def returned(self, flavor: str, now: float) -> Sequence[Return]:
        """Return the amounts that gangs on a flavor are planned to release, in the order of time."""

    @abstractmethod
    def late(self, now: float) -> Iterator[int]:
        """Yield the jobs that run longer than planned."""

    def is_any_late(self, now: float) -> bool:
        """Return whether a gang runs longer than planned."""
        return any(True for _ in self.late(now))


class RunningGangs(Gangs):
    """All running gangs. The cost of reading their total use does not depend on their number."""

    def __init__(self, runs: Iterable[Running] = ()) -> None:
        """Start with the gangs `runs`."""
        self._runs: dict[int, Running] = {}
        self._held: dict[str, dict[str, OfQueue]] = {}
        self._flavors: dict[str, _OnFlavor] = {}
        self.elastic: dict[int, Running] = {}
        """The gangs that may change their size."""
        for run in runs:
            self.add(run)

    def add(self, run: Running) -> None:
        """Add a gang, or replace the gang with the same id."""
        job_id, priority = run.gang.job_id, run.gang.priority
        self.remove(job_id)
        self._runs[job_id] = run
        if 0 < run.gang.least < run.gang.parts[0].count:
            self.elastic[job_id] = run
        of_queue, flavor, end, needs = self._places(run)
        of_queue.count(1, needs)
        of_queue.runs[job_id] = run
        of_queue.priorities[priority] = of_queue.priorities.get(priority, 0) + 1
        flavor.held.count(1, needs)
        for machine, amounts in machines_of(run).items():
            flavor.machines.setdefault(machine, {})[job_id] = amounts
        if end < math.inf:
            known = flavor.ends.get(end)
            if known is None:
                known = flavor.ends[end] = _End()
                insort(flavor.returns, (end, known.held.amounts), key=_time)
            known.held.count(1, needs)
            known.jobs.add(job_id)

    def remove(self, job_id: int) -> Running | None:
        """Remove the gang of a job, and return it; None if it does not run."""
        run = self._runs.pop(job_id, None)
        if run is None:
            return None
        self.elastic.pop(job_id, None)
        of_queue, flavor, end, needs = self._places(run)
        self._leave(run, of_queue, needs)
        flavor.held.count(-1, needs)
        if not flavor.held.gangs:
            del self._flavors[run.allocation.flavor]
            return run
        for machine in machines_of(run):
            there = flavor.machines[machine]
            del there[job_id]
            if not there:
                del flavor.machines[machine]
        if end < math.inf:
            known = flavor.ends[end]
            known.held.count(-1, needs)
            known.jobs.discard(job_id)
            if not known.jobs:
                del flavor.ends[end]
                del flavor.returns[bisect_left(flavor.returns, end, key=_time)]
        return run

    def _leave(self, run: Running, of_queue: OfQueue, needs: Mapping[str, int]) -> None:
        of_queue.count(-1, needs)
        del of_queue.runs[run.gang.job_id]
        of_queue.priorities[run.gang.priority] -= 1
        if not of_queue.priorities[run.gang.priority]:
            del of_queue.priorities[run.gang.priority]
        if not of_queue.gangs:
            held = self._held[run.gang.queue]
            del held[run.allocation.flavor]
            if not held:
                del self._held[run.gang.queue]

    def clear(self) -> None:
        """Remove all gangs."""
        self._runs.clear()
        self._held.clear()
        self._flavors.clear()
        self.elastic.clear()

    def held(self) -> Mapping[str, Mapping[str, OfQueue]]:
        """Return the gangs and the resources that they hold, by queue and flavor."""
        return self._held

    def held_on(self, flavor: str) -> Mapping[str, int]:
        """Return the amounts that gangs hold on a flavor, by resource."""
        known = self._flavors.get(flavor)
        return {} if known is None else known.held.amounts

    def on_machines(self, flavor: str) -> Mapping[str, Mapping[int, Resources]]:
        """Return the amounts that gangs hold on the machines of a flavor, by machine and job."""
        known = self._flavors.get(flavor)
        return {} if known is None else known.machines

    def returned(self, flavor: str, now: float) -> Sequence[Return]:
        """Return the amounts that gangs on a flavor are planned to release, in the order of time."""
        known = self._flavors.get(flavor)
        if known is None:
            return []
        late = bisect_right(known.returns, now, key=_time)
        if not late:
            return known.returns
        overdue = (self._runs[job] for time, _ in known.returns[:late] for job in known.ends[time].jobs)
        extended = ((planned_end(run, now), used_by(run)) for run in overdue)
        return in_order([*known.returns[late:], *extended])

    def late(self, now: float) -> Iterator[int]:
        """Yield the jobs that run longer than planned."""
        for flavor in self._flavors.values():
            for time, _ in flavor.returns:
                if time > now:
                    break
                yield from flavor.ends[time].jobs

    def _places(self, run: Running) -> tuple[OfQueue, _OnFlavor, float, dict[str, int]]:
        flavor = run.allocation.flavor
        of_queue = self._held.setdefault(run.gang.queue, {}).setdefault(flavor, OfQueue())
        end = run.started_at + planned_length(run.gang.expected)
        return of_queue, self._flavors.setdefault(flavor, _OnFlavor()), end, used_by(run)

    def __getitem__(self, job_id: int) -> Running:
        return self._runs[job_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._runs

    def values(self) -> ValuesView[Running]:
        """Return the gangs."""
        return self._runs.values()


_time = itemgetter(0)


def running_gangs(running: Mapping[int, Running]) -> RunningGangs:
    """Return `running` as RunningGangs. If it is another mapping, the use of the gangs is counted now."""
    return running if isinstance(running, RunningGangs) else RunningGangs(running.values())


def used_by(run: Running) -> dict[str, int]:
    """Return the amount of each resource that a running gang uses."""
    return total(held_parts(run.gang, run.allocation))


def machines_of(run: Running) -> dict[str, dict[str, int]]:
    """Return the amounts that a running gang holds on each machine, as far as its machines are known."""
    nodes, rank = run.allocation.nodes, 0
    found: dict[str, dict[str, int]] = {}
    for part in held_parts(run.gang, run.allocation) if nodes else ():
        for machine in nodes[rank : rank + part.count]:
            amounts = found.setdefault(machine, {})
            for name, amount in {INSTANCES: 1, **part.each}.items():
                amounts[name] = amounts.get(name, 0) + amount
        rank += part.count
    return found


def instances_of(run: Running) -> int:
    """Return the number of instances that a running gang holds."""
    return sum(part.count for part in held_parts(run.gang, run.allocation))


def trainers_of(run: Running) -> int:
    """Return the number of trainers that a running gang has."""
    return run.allocation.trainers or (run.gang.parts[0].count if run.gang.parts else 0)


def resized(run: Running, trainers: int) -> Running:
    """Return the gang with this number of trainers.

    With fewer trainers, those with the highest ranks are left out. With more trainers, the gang's machines
    are no longer known.
    """
    held, nodes = trainers_of(run), run.allocation.nodes
    kept = nodes[:trainers] + nodes[held:] if trainers <= held else ()
    return replace(run, allocation=replace(run.allocation, trainers=trainers, nodes=kept))
