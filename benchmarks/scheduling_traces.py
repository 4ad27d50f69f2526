"""Two traces of production clusters, replayed through the scheduling policies in the same run.

    python -m benchmarks.scheduling_traces [--quick] [--traces FOLDER]

FOLDER, or the folder named by SCHEDULING_TRACES, has openb.csv.gz and philly.csv.gz. No clock is read, so the
figures are the same on each machine. `--quick` replays the first 1,500 jobs of each trace.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support import Row, print_table
from job_tracker.scheduling.simulation import trace, workload
from job_tracker.scheduling.simulation.cluster import Cluster
from job_tracker.scheduling.simulation.learning import Estimates, LearnedDurations
from job_tracker.scheduling.simulation.metrics import Summary, summary
from job_tracker.scheduling.simulation.policies import POLICIES, PolicyName
from job_tracker.scheduling.simulation.replay import DAY, replay
from job_tracker.scheduling.simulation.trace import TraceJob

FOLDER = Path(os.environ.get("SCHEDULING_TRACES", "traces"))
_QUICK = 1_500
_UTILISATION_WITHIN = 0.005
_WAITING_AT_MOST = 1.01
_BEFORE_HIGH = (0.85, 0.95)
_LOSS_AT_MOST = 0.9


@dataclass(frozen=True)
class Case:
    """A trace, the capacity of the cluster for its replay, and the load to which the trace is scaled."""

    name: str
    capacity: int
    load: float
    since: float = 0.0

    def jobs(self, folder: Path, quick: bool) -> list[TraceJob]:
        every = trace.read(folder / f"{self.name}.csv.gz")
        kept = workload.prepared(every, since=self.since, longest=3 * DAY)
        return workload.scaled(kept[:_QUICK] if quick else kept, self.capacity, self.load)


CASES = (Case("openb", 16, 0.9, since=10_000_000), Case("philly", 24, 0.95))


def measure(quick: bool, folder: Path = FOLDER) -> list[Row]:
    if missing := [case.name for case in CASES if not (folder / f"{case.name}.csv.gz").is_file()]:
        return [
            Row(
                "scheduling-traces", f"not run: {missing[0]}.csv.gz is not in the folder of SCHEDULING_TRACES"
            )
        ]
    return [row for case in CASES for row in _of_case(case, case.jobs(folder, quick))]


def _of_case(case: Case, jobs: list[TraceJob]) -> Iterator[Row]:
    cluster = Cluster.of(case.capacity)
    found = {
        name: summary(replay(jobs, policy, cluster), cluster.resources) for name, policy in POLICIES.items()
    }
    for name, each in found.items():
        yield Row(f"{case.name}: {name.value}", _figures(each))
    mine = found[PolicyName.PLANNER]
    yield from _compared(case, mine, found)
    yield _promises(case, mine)
    yield from _learned(case, jobs)


def _figures(each: Summary) -> str:
    return f"{each.utilisation:.3f}, waiting {each.waits.mean:,.0f} s, largest {each.largest.mean:,.0f} s"


def _compared(case: Case, mine: Summary, found: dict[PolicyName, Summary]) -> Iterator[Row]:
    easy, conservative = found[PolicyName.EASY], found[PolicyName.CONSERVATIVE]
    yield Row(
        f"{case.name}: utilisation against EASY's",
        f"{mine.utilisation:.4f}",
        f"{easy.utilisation:.4f}",
        f"{mine.utilisation - easy.utilisation:+.4f}",
        f"≥ -{_UTILISATION_WITHIN}",
        mine.utilisation >= easy.utilisation - _UTILISATION_WITHIN,
    )
    for of_what, ours, theirs in (
        ("mean waiting", mine.waits, conservative.waits),
        ("mean waiting of the largest gangs", mine.largest, conservative.largest),
    ):
        ratio = ours.mean / theirs.mean if theirs.mean else 1.0
        yield Row(
            f"{case.name}: {of_what} against conservative backfill's",
            f"{ours.mean:,.0f} s",
            f"{theirs.mean:,.0f} s",
            f"{ratio:.3f}",
            f"≤ {_WAITING_AT_MOST}",
            ratio <= _WAITING_AT_MOST,
        )


def _promises(case: Case, mine: Summary) -> Row:
    late = mine.promised - mine.kept
    return Row(
        f"{case.name}: jobs that start after their first promise, exact durations",
        f"{late} of {mine.promised}",
        "",
        "",
        "0",
        late == 0 and mine.promised > 0 and mine.unstarted == 0,
    )


def _learned(case: Case, jobs: list[TraceJob]) -> Iterator[Row]:
    estimates = Estimates()
    policy = POLICIES[PolicyName.PLANNER]
    cluster = Cluster.of(case.capacity)
    records = replay(jobs, policy, cluster, LearnedDurations(), estimates)
    yield Row(f"{case.name}: learned durations", _figures(summary(records, cluster.resources)))
    judged = estimates.judgement()
    low, high = _BEFORE_HIGH
    yield Row(
        f"{case.name}: jobs that start before their P90, learned durations ({judged.jobs:,} jobs)",
        f"{judged.before_high:.1%}",
        "",
        "",
        f"{low:.0%} to {high:.0%}",
        low <= judged.before_high <= high,
    )
    yield Row(
        f"{case.name}: pinball loss against the quantiles of the last 500 waits",
        f"{judged.loss:,.0f} s",
        f"{judged.loss_of_last_waits:,.0f} s",
        f"{judged.ratio:.2f}",
        f"≤ {_LOSS_AT_MOST}",
        judged.ratio <= _LOSS_AT_MOST,
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
