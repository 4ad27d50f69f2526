"""Running gangs that are being stopped: their resources soon become free."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from job_tracker.scheduling.model import Expected, Running, Snapshot
from job_tracker.scheduling.running import RunningGangs

_PATIENCE: Final = 3600.0
"""The seconds after the decision to stop a gang within which the stop should end.

After that, it may never end.
"""
_SECONDS: Final = 1.0
"""The seconds for which a gang that is being stopped is planned to hold its resources."""


def without_hung(snapshot: Snapshot, now: float) -> Snapshot:
    """Return the snapshot without the stops that may never end: the gangs that they stop count as running on.

    These gangs get no stake, so they are not stopped again. The waiting jobs for which they were stopped lose
    their claims: no capacity is kept for these waiting jobs, and other gangs may be stopped for them.
    """
    hung = {
        job_id: stake.leaves_for
        for job_id, stake in snapshot.stakes.items()
        if stake.is_leaving and now >= stake.noticed_at + _PATIENCE
    }
    if not hung:
        return snapshot
    return replace(
        snapshot,
        stakes={job_id: stake for job_id, stake in snapshot.stakes.items() if job_id not in hung},
        claims=[job_id for job_id in snapshot.claims if job_id not in hung.values()],
    )


def leaving_of(snapshot: Snapshot) -> list[Running]:
    """Return the gangs that are being stopped."""
    return [
        snapshot.running[job_id]
        for job_id, stake in snapshot.stakes.items()
        if stake.is_leaving and job_id in snapshot.running
    ]


def leaving_for(snapshot: Snapshot, job_id: int) -> list[int]:
    """Return the running jobs that are being stopped for a waiting job."""
    return [each for each, stake in snapshot.stakes.items() if stake.leaves_for == job_id]


def awaited_of(snapshot: Snapshot, running: Mapping[int, Running]) -> dict[int, list[Running]]:
    """Return the gangs of `running` that are being stopped for waiting jobs, by the id of the waiting job."""
    awaited: dict[int, list[Running]] = {}
    for job_id, stake in snapshot.stakes.items():
        if stake.leaves_for and job_id in running:
            awaited.setdefault(stake.leaves_for, []).append(running[job_id])
    return awaited


def soon_gone(snapshot: Snapshot, now: float) -> Mapping[int, Running]:
    """Return the running gangs.

    Gangs that are being stopped are changed so that their planned end is at once. If there are no claims,
    only those of them that continue in another size are changed.
    """
    leaving = [
        run for run in leaving_of(snapshot) if snapshot.claims or snapshot.stakes[run.gang.job_id].goes_on
    ]
    if not leaving:
        return snapshot.running
    running = RunningGangs(snapshot.running.values())
    for run in leaving:
        left = max(0.0, now - run.started_at) + _SECONDS
        running.add(replace(run, gang=replace(run.gang, expected=Expected(median=left, high=left))))
    return running
