"""Draws the shares of two projects on a service: one project floods the queue, the other submits large gangs.

    python -m benchmarks.two_projects [--backend kubernetes] [--picture FILE.svg] [--quick]

The benchmark runs twice: with one queue for both projects, and with a queue for each. The shares in the
picture are computed from the service's snapshots of its queues (GetQueueSnapshot). Jobs only sleep. On
Kubernetes, the benchmark uses the cluster of tests/cluster, which must be up.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from benchmarks.support import (
    ALGORITHM,
    Row,
    Server,
    clean_up_on_sigterm,
    make_dataset,
    print_table,
    script,
    serving,
    workspace,
)
from training_service._generated import training_service_pb2 as pb
from training_service.client import TrainingClient

CAPACITY: Final = 8
GANG: Final = 6
FLOODS, GANGS = "vision", "speech"
_CLUSTER = Path(__file__).parents[1] / "tests" / "cluster" / "cluster"
_IMAGE = "two-projects:1"
_LOOK_SECONDS = 0.1
_PATIENCE = 600.0
_COMMAND = '["python3", "-c", "import os, time; time.sleep(float(os.environ[\\"RUN_SECONDS\\"]))"]'
_CONFIG = f"""
[projects.{FLOODS}]
[projects.{GANGS}]
[algorithms.{ALGORITHM}]
parameters = {{RUN_SECONDS = {{}}}}
"""
_QUEUES = f"""
[scheduling.queues.{FLOODS}]
projects = ["{FLOODS}"]
[scheduling.queues.{GANGS}]
projects = ["{GANGS}"]
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """The jobs that the projects submit."""

    jobs: int
    """The number of jobs of one instance with which the first project floods the queue."""
    seconds: float
    """The seconds that each of these jobs runs."""
    gangs: int
    gang_seconds: float
    gang_after: float
    """The time at which the gangs are submitted, in seconds from the beginning."""


WHOLE = Plan(jobs=48, seconds=5.0, gangs=2, gang_seconds=6.0, gang_after=6.0)
QUICK = Plan(jobs=40, seconds=1.0, gangs=1, gang_seconds=5.0, gang_after=1.0)


@dataclass(slots=True)
class Seen:
    """The result of one run: the service's snapshots, and the times and waits of the gangs."""

    name: str
    times: list[float] = field(default_factory=list)
    """The times of the snapshots, in seconds from the beginning."""
    running: dict[str, list[int]] = field(default_factory=lambda: {FLOODS: [], GANGS: []})
    """The numbers of instances of running jobs at these times, by project."""
    submitted: dict[int, float] = field(default_factory=dict)
    started: dict[int, float] = field(default_factory=dict)
    """The start of each gang, in seconds from the beginning."""
    overtaken: dict[int, int] = field(default_factory=dict)
    """For each gang, the number of the other project's jobs that started after it."""

    @property
    def waits(self) -> list[float]:
        """The waits of the gangs, in seconds."""
        return [self.started[job] - self.submitted[job] for job in sorted(self.submitted)]

    @property
    def utilisation(self) -> float:
        """The share of the capacity that was used until the last job ended."""
        spans = [after - before for before, after in zip(self.times, self.times[1:], strict=False)]
        used = [sum(each[place] for each in self.running.values()) for place in range(len(spans))]
        work = sum(span * count for span, count in zip(spans, used, strict=True))
        return work / (CAPACITY * sum(spans))


def measure(quick: bool) -> list[Row]:
    """Return the rows of a measurement on processes."""
    return rows(seen_of(QUICK if quick else WHOLE, "process"))


def seen_of(plan: Plan, backend: str) -> list[Seen]:
    """Run the plan with one queue, then with two."""
    found = []
    for name, queues in (("one queue for both", ""), ("a queue for each", _QUEUES)):
        with workspace() as folder, _service(folder, backend, queues) as server:
            found.append(_run(Seen(name), plan, server))
    return found


def _run(seen: Seen, plan: Plan, server: Server) -> Seen:
    began = time.time()  # the snapshots of the service have absolute times
    with (
        TrainingClient(server.address, project=FLOODS) as floods,
        TrainingClient(server.address, project=GANGS) as gangs,
        ThreadPoolExecutor(16) as pool,
    ):
        every = list(pool.map(lambda _: _submit(floods, plan.seconds, 1), range(plan.jobs)))
        while (now := time.time() - began) < _PATIENCE:
            if now >= plan.gang_after and len(seen.submitted) < plan.gangs:
                seen.submitted |= {_submit(gangs, plan.gang_seconds, GANG): now for _ in range(plan.gangs)}
            is_empty = not _look(seen, floods.queue_snapshot(), began)
            if is_empty and len(seen.submitted) == plan.gangs and _have_ended(floods, seen):
                break
            time.sleep(_LOOK_SECONDS)
        starts = {job: _start_of(floods.status(job)) - began for job in (*every, *seen.submitted)}
    for gang in seen.submitted:
        seen.started[gang] = starts[gang]
        seen.overtaken[gang] = sum(starts[job] > starts[gang] for job in every)
    return seen


def _start_of(status: pb.GetTrainingStatusResponse) -> float:
    """Return the Unix time at which the job left the queue. Raises RuntimeError if it has not succeeded."""
    if status.status != pb.succeed:
        raise RuntimeError(f"job {status.job_id} has not succeeded: {status}")
    left = next(move for move in status.moves if move.status == pb.launch)
    return float(left.at.ToNanoseconds()) / 1e9


def _have_ended(client: TrainingClient, seen: Seen) -> bool:
    """Return whether all gangs have ended, including gangs that no snapshot has shown while they ran."""
    return all(client.status(job).status in (pb.succeed, pb.failure) for job in seen.submitted)


def _submit(client: TrainingClient, seconds: float, instances: int) -> int:
    return client.submit(
        ALGORITHM,
        "1",
        "v1",
        instances=instances,
        parameters={"RUN_SECONDS": f"{seconds:g}"},
        expected=timedelta(seconds=seconds),
    )


def _look(seen: Seen, snapshot: pb.GetQueueSnapshotResponse, began: float) -> bool:
    """Record the running jobs of a snapshot. Return False if the snapshot is new and has no job, else True.

    Raises RuntimeError if more instances run than the capacity allows.
    """
    now = snapshot.taken_at.ToMicroseconds() / 1e6 - began
    if seen.times and now <= seen.times[-1]:
        return True  # this snapshot was seen already
    sizes = [sum(part.count for part in shape.parts) for shape in snapshot.shapes]
    running = dict.fromkeys(seen.running, 0)
    for job in snapshot.jobs:
        if job.HasField("admitted_at"):
            running[job.project] += sizes[job.shape]
    if sum(running.values()) > CAPACITY:
        raise RuntimeError(f"{running} instances run, with a capacity of {CAPACITY}: gangs may be halved")
    seen.times.append(now)
    for project, count in running.items():
        seen.running[project].append(count)
    return bool(snapshot.jobs)


# --- the service ---------------------------------------------------------------------------------


@contextmanager
def _service(folder: Path, backend: str, queues: str) -> Iterator[Server]:
    make_dataset(folder)
    config = folder / "two-projects.toml"
    with _backend(backend) as (table, flags):
        config.write_text(f"{_CONFIG}[algorithms.{ALGORITHM}.{backend}]\n{table}\n{queues}")
        with serving(
            [
                *(script("training-service"), "serve", "--backend", backend, "--config", str(config)),
                *("--data-dir", str(folder), "--address", "127.0.0.1:0", "--capacity", str(CAPACITY)),
                *flags,
            ]
        ) as server:
            yield server


@contextmanager
def _backend(backend: str) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the algorithm's table for the backend, and options of the service."""
    if backend == "process":
        yield f"command = {_COMMAND}\n", ()
        return
    if subprocess.run([_CLUSTER, "status"], check=False, capture_output=True).returncode:
        sys.exit("no test cluster is up; run: tests/cluster/cluster up")
    _cluster("program-image", _IMAGE)
    namespace = f"two-projects-{uuid4().hex[:8]}"
    _cluster("kubectl", "create", "namespace", namespace)
    try:
        table = f'image = "{_IMAGE}"\ncommand = {_COMMAND}\nrun_as_user = 10001\n'
        kubeconfig = _cluster("kubeconfig")
        yield (
            table,
            (f"--set=kubernetes.kubeconfig={kubeconfig}", f"--set=kubernetes.namespace={namespace}"),
        )
    finally:
        _cluster("kubectl", "delete", "namespace", namespace, "--wait=false")


def _cluster(*arguments: str) -> str:
    return subprocess.run(
        [_CLUSTER, *arguments], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


# --- the results -------------------------------------------------------------------------------


def rows(every: Sequence[Seen]) -> list[Row]:
    """Return rows that compare both runs."""
    alone, shared = every[1], every[0]
    mine, theirs = (max(seen.waits) for seen in (alone, shared))
    return [
        Row(
            f"longest wait of a job with {GANG} of {CAPACITY} instances: own queues against one",
            f"{mine:.1f} s",
            f"{theirs:.1f} s",
            f"{mine / theirs:.2f}",
            "< 1",
            mine < theirs,
        ),
        Row(
            "jobs of the flood that still wait when the first gang starts",
            str(alone.overtaken[min(alone.overtaken)]),
            str(shared.overtaken[min(shared.overtaken)]),
        ),
        Row("utilisation", f"{alone.utilisation:.1%}", f"{shared.utilisation:.1%}"),
    ]


def draw(every: Sequence[Seen], path: Path) -> None:
    """Draw the shares of both projects over time, one run above the other."""
    import_module("matplotlib").use("agg")
    pyplot: Any = import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(
        len(every), 1, sharex=True, figsize=(9, 2.6 * len(every)), layout="constrained"
    )
    for axis, seen in zip(axes, every, strict=True):
        shares = [[count / CAPACITY for count in counts] for counts in seen.running.values()]
        axis.stackplot(*_steps(seen.times, shares), labels=list(seen.running))
        job, at = min(seen.submitted.items())
        axis.axvline(at, color="black", linestyle=":")
        axis.text(at, 1.06, " gangs submitted", fontsize=8)
        axis.set_title(f"{seen.name}: the first gang starts after {seen.started[job] - at:.1f} s", loc="left")
        axis.set_ylabel("share of the capacity")
        axis.set_ylim(0, 1.25)
        axis.legend(loc="upper right", ncols=2)
    axes[-1].set_xlabel("seconds")
    figure.savefig(path)
    pyplot.close(figure)


def _steps(
    times: Sequence[float], shares: Sequence[Sequence[float]]
) -> tuple[list[float], list[list[float]]]:
    """Return the points of step-shaped lines, as times and shares.

    Between the first and the last point, points where nothing changes are left out.
    """
    kept_times, kept = list[float](), [list[float]() for _ in shares]
    for place, at in enumerate(times):
        now = [each[place] for each in shares]
        before = [each[place - 1] for each in shares] if place else now
        if now != before:
            _add(kept_times, kept, at, before)
        if not place or now != before or place == len(times) - 1:
            _add(kept_times, kept, at, now)
    return kept_times, kept


def _add(times: list[float], every: Sequence[list[float]], at: float, values: Sequence[float]) -> None:
    times.append(at)
    for each, value in zip(every, values, strict=True):
        each.append(value)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", choices=("process", "kubernetes"), default="process")
    parser.add_argument("--picture", type=Path, default=Path("two-projects.svg"))
    parser.add_argument("--quick", action="store_true", help="short jobs, for tests")
    chosen = parser.parse_args()
    clean_up_on_sigterm()
    every = seen_of(QUICK if chosen.quick else WHOLE, chosen.backend)
    draw(every, chosen.picture)
    compared = rows(every)
    print_table(compared)
    print(f"wrote {chosen.picture}")
    return 1 if any(row.met is False for row in compared) else 0


if __name__ == "__main__":
    sys.exit(main())
