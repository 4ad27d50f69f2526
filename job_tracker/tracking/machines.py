"""Finds the machines that are slow for several jobs: a pure function of reports."""

from collections.abc import Iterable

from job_tracker.reports.ranks import Watched

SEVERAL = 2
"""A machine counts as slow if at least this many jobs are slow on it.

A single job may be slow there because of its share of the data.
"""


def slow_machines(attempts: Iterable[Watched]) -> dict[str, int]:
    """Return the machines that are slow for at least SEVERAL jobs, each with the number of these jobs.

    A machine is slow for a job if all of the job's processes on it are slow, while a process on another
    machine is not slow.
    """
    jobs: dict[str, int] = {}
    for watched in attempts:
        slow = {process for process, each in watched.signs.items() if each.slow_since is not None}
        if not slow:
            continue
        machines: dict[str, set[int]] = {}
        for process, each in watched.signs.items():
            if each.last.step_seconds > 0 and (machine := watched.machine_of(process)):
                machines.setdefault(machine, set()).add(process)
        guilty = [machine for machine, members in machines.items() if members <= slow]
        if len(guilty) < len(machines):
            for machine in guilty:
                jobs[machine] = jobs.get(machine, 0) + 1
    return {machine: count for machine, count in jobs.items() if count >= SEVERAL}
