"""Running gangs that are being stopped: their resources soon become free."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from job_tracker.scheduling.lengths import planned_end
from job_tracker.scheduling.model import Expected, Resources, Running, Snapshot, Stake
from job_tracker.scheduling.profile import Return, in_order
from job_tracker.scheduling.running import Gangs, Held, RunningGangs, running_gangs, used_by

_PATIENCE: Final = 3600.0
"""A stop that has not ended this many seconds after the decision may never end."""
_SECONDS: Final = 1.0
"""The seconds from now for which a gang that is being stopped is planned to hold its resources."""


class Stakes(Mapping[int, Stake]):
    """The stakes (see Stake) by job. Those of gangs that are being stopped are found without a search.

    Two objects may share their stakes; see `without`.
    """

    def __init__(self, stakes: Mapping[int, Stake] | None = None) -> None:
        """Start with some stakes."""
        self._stakes: dict[int, Stake] = {}
        self.leaving: dict[int, Stake] = {}
        """The stakes of the gangs that are being stopped."""
        self._hidden: Collection[int] = frozenset()
        for job_id, stake in (stakes or {}).items():
            self[job_id] = stake

    def without(self, job_ids: Collection[int]) -> "Stakes":
        """Return the stakes of all jobs except `job_ids`. The result is valid until a stake changes."""
        others = Stakes()
        others._stakes, others._hidden = self._stakes, {*self._hidden, *job_ids}
        others.leaving = {job_id: each for job_id, each in self.leaving.items() if job_id not in job_ids}
        return others

    def __setitem__(self, job_id: int, stake: Stake) -> None:
        self._stakes[job_id] = stake
        if stake.is_leaving:
            self.leaving[job_id] = stake
        else:
            self.leaving.pop(job_id, None)

    def pop(self, job_id: int) -> None:
        """Forget the stake of a job, if there is one."""
        self._stakes.pop(job_id, None)
        self.leaving.pop(job_id, None)

    def clear(self) -> None:
        """Forget all stakes."""
        self._stakes.clear()
        self.leaving.clear()

    def __getitem__(self, job_id: int) -> Stake:
        if job_id in self._hidden:
            raise KeyError(job_id)
        return self._stakes[job_id]

    def __iter__(self) -> Iterator[int]:
        return (job_id for job_id in self._stakes if job_id not in self._hidden)

    def __len__(self) -> int:
        return len(self._stakes) - len(self._hidden)


class SoonGone(Gangs):
    """The running gangs, with changed planned ends for some of them.

    The cost of making this object depends only on the number of changed ends. The object is valid until the
    running gangs change.
    """

    def __init__(self, running: RunningGangs, changed: Iterable[Running]) -> None:
        """`changed` has some gangs of `running`, each with another expected run time."""
        self._running = running
        self._changed = {run.gang.job_id: run for run in changed}

    def held(self) -> Mapping[str, Mapping[str, Held]]:
        """Return the resources that gangs hold, by queue and flavor."""
        return self._running.held()

    def held_on(self, flavor: str) -> Mapping[str, int]:
        """Return the amounts that gangs hold on a flavor, by resource."""
        return self._running.held_on(flavor)

    def on_machines(self, flavor: str) -> Mapping[str, Mapping[int, Resources]]:
        """Return the amounts that gangs hold on the machines of a flavor, by machine and job."""
        return self._running.on_machines(flavor)

    def returned(self, flavor: str, now: float) -> Sequence[Return]:
        """Return the amounts that gangs are planned to release, in order of time, with the changed ends."""
        returned = self._running.returned(flavor, now)
        changed = [run for run in self._changed.values() if run.allocation.flavor == flavor]
        if not changed:
            return returned
        moved: list[Return] = []
        for run in changed:
            amounts = used_by(run)
            moved.append((planned_end(run, now), amounts))
            # The original end stays in `returned`, so the amounts are subtracted again at this end.
            nothing = {name: -amount for name, amount in amounts.items()}
            moved.append((planned_end(self._running[run.gang.job_id], now), nothing))
        return in_order([*returned, *moved])

    def late(self, now: float) -> Iterator[int]:
        """Yield the jobs that run longer than planned."""
        return (job_id for job_id in self._running.late(now) if job_id not in self._changed)

    def __getitem__(self, job_id: int) -> Running:
        changed = self._changed.get(job_id)
        return self._running[job_id] if changed is None else changed

    def __iter__(self) -> Iterator[int]:
        return iter(self._running)

    def __len__(self) -> int:
        return len(self._running)


def without_hung(snapshot: Snapshot, now: float) -> Snapshot:
    """Return the snapshot without the stops that may never end: their gangs count as if they ran on.

    These gangs get no stake, so they are not stopped again. Waiting jobs for which such a stop was decided
    lose their claims: no capacity is kept for these waiting jobs, and other gangs may be stopped for them.
    """
    stakes = stakes_of(snapshot)
    hung = {
        job_id: stake.leaves_for
        for job_id, stake in stakes.leaving.items()
        if now >= stake.noticed_at + _PATIENCE
    }
    if not hung:
        return snapshot
    return replace(
        snapshot,
        stakes=stakes.without(hung.keys()),
        claims=[job_id for job_id in snapshot.claims if job_id not in hung.values()],
    )


def stakes_of(snapshot: Snapshot) -> Stakes:
    """Return the stakes of a snapshot as Stakes. A mapping of another type is converted."""
    return snapshot.stakes if isinstance(snapshot.stakes, Stakes) else Stakes(snapshot.stakes)


def leaving_of(snapshot: Snapshot) -> list[Running]:
    """Return the gangs that are being stopped."""
    return [snapshot.running[job_id] for job_id in stakes_of(snapshot).leaving if job_id in snapshot.running]


def leaving_for(snapshot: Snapshot, job_id: int) -> list[int]:
    """Return the running jobs that are being stopped for a waiting job."""
    return [each for each, stake in stakes_of(snapshot).leaving.items() if stake.leaves_for == job_id]


def awaited_of(snapshot: Snapshot, running: Mapping[int, Running]) -> dict[int, list[Running]]:
    """Return the gangs of `running` that are being stopped for waiting jobs, by the id of the waiting job."""
    awaited: dict[int, list[Running]] = {}
    for job_id, stake in stakes_of(snapshot).leaving.items():
        if stake.leaves_for and job_id in running:
            awaited.setdefault(stake.leaves_for, []).append(running[job_id])
    return awaited


def soon_gone(snapshot: Snapshot, now: float) -> Gangs:
    """Return the running gangs.

    In the result, the gangs that are being stopped are planned to end at once. But if no waiting job has a
    claim (see Snapshot.claims), this applies only to gangs that continue in another size.
    """
    changed = []
    for run in leaving_of(snapshot):
        if snapshot.claims or snapshot.stakes[run.gang.job_id].goes_on:
            left = max(0.0, now - run.started_at) + _SECONDS
            changed.append(replace(run, gang=replace(run.gang, expected=Expected(median=left, high=left))))
    running = running_gangs(snapshot.running)
    return SoonGone(running, changed) if changed else running
