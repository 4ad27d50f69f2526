"""What stops of running jobs for others lose: those that lose least, against the newest first as Kueue does.

    python -m benchmarks.preemption [--quick] [--traces FOLDER]

Both policies replay the traces of benchmarks.scheduling_traces, with the same jobs. By a seeded draw, a
quarter of the jobs has a high priority, which stops others; half obey the notice, a quarter save every 10 to
60 minutes and ignore it, and a quarter never save. All need a minute to get going again, so those that obey
lose 60 s each time. Policies know only which checkpoints were reported: those that obey report one every
minute, as trainer_kit does. Nothing depends on the machine. `--quick` replays the first 1,500 jobs of each.
"""

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
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
_LOST_AT_MOST: Final = 0.5


def measure(quick: bool, folder: Path = FOLDER) -> list[Row]:
    if missing := [case.name for case in CASES if not (folder / f"{case.name}.csv.gz").is_file()]:
        return [Row("preemption", f"not run: {missing[0]}.csv.gz is not in the folder of SCHEDULING_TRACES")]
    return [row for case in CASES for row in _of_case(case, mixed(case.jobs(folder, quick)))]


def mixed(jobs: Sequence[TraceJob], seed: int = 1) -> list[TraceJob]:
    """Return the jobs with two priorities and three ways to save, drawn with a seed."""
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


def _of_case(case: Case, jobs: list[TraceJob]) -> Iterator[Row]:
    rules = PreemptionRules(by_priority=True)
    queues = {DEFAULT_QUEUE: Queue(name=DEFAULT_QUEUE, preemption=rules)}
    cluster = replace(Cluster.of(case.capacity), queues=queues)
    mine, peer = (
        summary(replay(jobs, policy_of(name, cluster), cluster), cluster.resources)
        for name in (PolicyName.PLANNER, PolicyName.NEWEST)
    )
    for name, each in ((PolicyName.PLANNER, mine), (PolicyName.NEWEST, peer)):
        yield Row(f"{case.name}: {name.value}", _figures(each))
    ratio = mine.lost / peer.lost if peer.lost else 1.0
    yield Row(
        f"{case.name}: lost instance-seconds against newest first",
        f"{mine.lost:,.0f}",
        f"{peer.lost:,.0f}",
        f"{ratio:.2f}",
        f"≤ {_LOST_AT_MOST}",
        ratio <= _LOST_AT_MOST and not mine.unstarted,
    )


def _figures(each: Summary) -> str:
    waits = each.waits
    return (
        f"{each.stopped:,} stops, {each.lost:,.0f} instance-seconds lost, "
        f"utilisation {each.utilisation:.3f}, waiting {waits.mean:,.0f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--traces", type=Path, default=FOLDER)
    chosen = parser.parse_args()
    rows = measure(chosen.quick, chosen.traces)
    print_table(rows)
    sys.exit(any(row.met is False for row in rows))


if __name__ == "__main__":
    main()
