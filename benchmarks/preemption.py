"""Measures the work that preemptions lose under two policies: the planner chooses which jobs to stop, or the
newest jobs are stopped first, as in Kueue.

    python -m benchmarks.preemption [--quick] [--traces FOLDER] [--draws 16 17 18]

Both policies replay the traces of benchmarks.scheduling_traces, with the same jobs. Each processor runs one
replay at a time. A seeded draw gives a quarter of the jobs a high priority, by which they stop others. It
also decides how jobs save: half of them save on the notice, a quarter save every 10 to 60 minutes and ignore
the notice, and a quarter never save. All jobs need a minute to restart, so a job that saves on the notice
loses 60 s with each stop. Policies know only the reported checkpoints. Jobs that save on the notice report a
checkpoint every minute, as trainer_kit does. Most of the loss comes from a few stops, so draws differ widely,
and the target is for the loss of all draws together. To lose less, the planner may let jobs of the high
priority wait, so the table also has their mean wait. The planner stops no jobs if their loss is more than
three times the wait of the job for which they would be stopped, both in instance-seconds
(docs/scheduling.md). This limit was chosen on draws 1 to 30. For draws that had no part in the choice, use
`--draws 31 32 33`. Nothing depends on the machine. `--quick` replays the first 1,500 jobs of each trace, with
one draw.
"""

import argparse
import multiprocessing
import os
import random
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Final

from benchmarks.scheduling_traces import CASES, FOLDER, Case
from benchmarks.support import Row, print_table
from job_tracker.domain.naming import DEFAULT_QUEUE
from job_tracker.scheduling.model import PreemptionRules, Queue
from job_tracker.scheduling.simulation.attempts import Saving
from job_tracker.scheduling.simulation.cluster import Cluster
from job_tracker.scheduling.simulation.metrics import Summary, summary
from job_tracker.scheduling.simulation.policies import PolicyName, policy_of
from job_tracker.scheduling.simulation.replay import replay
from job_tracker.scheduling.simulation.trace import TraceJob

LOW: Final = -100
HIGH: Final = 100
HIGH_SHARE: Final = 0.25
STARTUP: Final = 60.0
OBEYING: Final = Saving(every=60.0, startup=STARTUP)
NEVER: Final = Saving(on_notice=False, startup=STARTUP)
DRAWS: Final = (16, 17, 18)
_LOST_AT_MOST: Final = 0.5
_POLICIES: Final = (PolicyName.PLANNER, PolicyName.NEWEST)


@dataclass(frozen=True)
class _Outcome:
    """The result of one replay."""

    summary: Summary
    high: float
    """The mean wait of the jobs of the high priority, in seconds."""


@dataclass(frozen=True)
class _Task:
    """One replay."""

    case: Case
    draw: int
    policy: PolicyName
    folder: Path
    quick: bool

    def run(self) -> _Outcome:
        """Replay the trace, and return the result."""
        rules = PreemptionRules(by_priority=True)
        queues = {DEFAULT_QUEUE: Queue(name=DEFAULT_QUEUE, preemption=rules)}
        cluster = replace(Cluster.of(self.case.capacity), queues=queues)
        jobs = mixed(self.case.jobs(self.folder, self.quick), self.draw)
        records = replay(jobs, policy_of(self.policy, cluster), cluster)
        high = fmean(record.waited for record in records if record.job.priority == HIGH)
        return _Outcome(summary(records, cluster.resources), high)


def measure(quick: bool, folder: Path = FOLDER, draws: Sequence[int] = DRAWS) -> list[Row]:
    if missing := [case.name for case in CASES if not (folder / f"{case.name}.csv.gz").is_file()]:
        return [Row("preemption", f"not run: {missing[0]}.csv.gz is not in the folder of SCHEDULING_TRACES")]
    draws = draws[:1] if quick else draws
    tasks = [_Task(*each, folder, quick) for each in product(CASES, draws, _POLICIES)]
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as processes:
        found = dict(zip(tasks, processes.map(_Task.run, tasks), strict=True))
    rows: list[Row] = []
    for case in CASES:
        mine, peers = (
            [found[_Task(case, draw, policy, folder, quick)] for draw in draws] for policy in _POLICIES
        )
        rows += [_of_draw(case, *each) for each in zip(draws, mine, peers, strict=True)]
        rows.append(_of_all(case, mine, peers))
    return rows


def mixed(jobs: Sequence[TraceJob], seed: int = 1) -> list[TraceJob]:
    """Return the jobs, each with a priority, HIGH or LOW, and one of three ways to save checkpoints.

    A generator with this seed draws both.
    """
    draws = random.Random(seed)
    return [
        replace(job, priority=HIGH if draws.random() < HIGH_SHARE else LOW, saving=_saving(draws))
        for job in jobs
    ]


def _saving(draws: random.Random) -> Saving:
    kind, every = draws.random(), draws.uniform(600.0, 3600.0)
    if kind < 0.5:
        return OBEYING
    return Saving(every=every, on_notice=False, startup=STARTUP) if kind < 0.75 else NEVER


def _of_draw(case: Case, draw: int, mine: _Outcome, peer: _Outcome) -> Row:
    return Row(
        f"{case.name}, draw {draw}: lost",
        _figures(mine),
        _figures(peer),
        _ratio(mine.summary.lost, peer.summary.lost),
    )


def _of_all(case: Case, mine: Sequence[_Outcome], peers: Sequence[_Outcome]) -> Row:
    lost, of_peers = (sum(each.summary.lost for each in found) for found in (mine, peers))
    return Row(
        f"{case.name}: lost instance-seconds against newest first, {len(mine)} draws",
        f"{lost:,.0f}",
        f"{of_peers:,.0f}",
        _ratio(lost, of_peers),
        f"≤ {_LOST_AT_MOST}",
        lost <= _LOST_AT_MOST * of_peers and not any(each.summary.unstarted for each in mine),
    )


def _ratio(lost: float, of_peers: float) -> str:
    return f"{lost / of_peers:.2f}" if of_peers else "-"


def _figures(each: _Outcome) -> str:
    found = each.summary
    return (
        f"{found.lost:,.0f} in {found.stopped:,} stops, utilisation {found.utilisation:.3f}, "
        f"waiting {found.waits.mean:,.0f} s, high priority {each.high:,.0f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--traces", type=Path, default=FOLDER)
    parser.add_argument("--draws", type=int, nargs="+", default=DRAWS, help="the seeds of the draws")
    chosen = parser.parse_args()
    rows = measure(chosen.quick, chosen.traces, chosen.draws)
    print_table(rows)
    sys.exit(any(row.met is False for row in rows))


if __name__ == "__main__":
    main()
