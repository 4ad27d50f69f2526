"""Drains a node while six jobs train on it. All jobs must succeed, and lose no step that they took before the
notice.

`python -m benchmarks.draining [--quick]`. The benchmark makes its own cluster with one node (tests/cluster).
Pods use the software of this machine. The jobs have one or two ranks and save only on the notice. An eviction
does not count against their single attempt. When all jobs train, `kubectl drain` evicts their pods. When this
command has returned, the node is uncordoned. Each job adds up the numbers of its steps and prints the sum at
its end. A step that is left out, or counted twice, changes the sum.
"""

import re
import sys
import time
from dataclasses import dataclass

from benchmarks.kubernetes_support import Cluster, cluster, new_namespace, or_left_out, service_on
from benchmarks.support import ALGORITHM, Row, run_alone, workspace
from tests.support.mounted import ROOT, in_a_pod, toml_of
from training_service._generated import training_service_pb2 as pb
from training_service.client import TrainingClient

SIZES = (1, 1, 1, 2, 2, 2)
_IMAGE = "bench-draining:1"
_STEPS, _STEPS_QUICK = 600, 300
_TRAINS_AT = 5  # steps


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a job."""

    ended_right: bool
    evictions: int
    lost: int
    """The number of steps before the drain that the next attempt repeated. 0 or less: none."""


def _measure(quick: bool) -> list[Row]:
    steps = _STEPS_QUICK if quick else _STEPS
    with cluster(node=True) as fresh, workspace() as folder:
        fresh.load_program_image(_IMAGE)
        namespace = new_namespace(fresh)
        storage = folder / "storage"
        folder.chmod(0o755)
        for writable in (storage, storage / "models", storage / "checkpoints"):
            writable.mkdir(exist_ok=True)
            writable.chmod(0o777)
        command = [sys.executable, "-m", "benchmarks.paced_rank"]
        environment = {
            "STEPS": str(steps),
            "PYTHONPATH": f"{ROOT}:{ROOT / 'trainer_images'}",
            "OMP_NUM_THREADS": "1",
            "CHECKPOINT_EVERY_SECONDS": "3600",
        }
        recipe = toml_of(in_a_pod(_IMAGE, storage, command, ROOT / "benchmarks"))
        recipe += f"\n[algorithms.{ALGORITHM}.environment]\n{toml_of(environment)}\n"
        flags = ("--set=retry.max_attempts=1", "--set=jobs.stop_grace=20")
        with (
            service_on(fresh, folder, namespace, capacity=sum(SIZES), recipe=recipe, flags=flags) as server,
            TrainingClient(server.address) as client,
        ):
            outcomes, seconds = _drained(fresh, client, steps)
    right = sum(each.ended_right for each in outcomes)
    evicted = sum(each.evictions == 1 for each in outcomes)
    lost = max(0, *(each.lost for each in outcomes))
    count = len(SIZES)
    return [
        Row(f"draining: {count} jobs, ended right", f"{right}", "", "", f"{count}", right == count),
        Row("draining: … evicted once", f"{evicted}", "", "", f"{count}", evicted == count),
        Row("draining: … steps before its notice that a job lost (most)", f"{lost}", "", "", "0", lost == 0),
        Row("draining: drain begins → node empty", f"{seconds:.1f} s"),
    ]


measure = or_left_out(_measure, "draining")


def _drained(fresh: Cluster, client: TrainingClient, steps: int) -> tuple[list[Outcome], float]:
    jobs = [client.submit(ALGORITHM, "1", "v1", instances=size) for size in SIZES]
    for job in jobs:
        _seen_at(client, job, _TRAINS_AT)
    node = fresh.kubectl("get", "nodes", "-o", "name").strip().removeprefix("node/")
    before = {job: client.status(job).progress.step for job in jobs}
    began = time.monotonic()
    fresh.kubectl("drain", node, "--force", "--ignore-daemonsets", "--delete-emptydir-data")
    seconds = time.monotonic() - began
    fresh.kubectl("uncordon", node)
    return [_outcome(client, job, before[job], steps) for job in jobs], seconds


def _outcome(client: TrainingClient, job: int, before: int, steps: int) -> Outcome:
    ended = client.wait(job)
    log = "".join(piece.text for piece in client.logs(job))
    resumed = re.search(r"resuming from step (\d+)", log)
    is_whole = f"sum {steps * (steps + 1) // 2}\n" in log
    return Outcome(
        ended_right=ended.status == pb.succeed and is_whole and not ended.HasField("diagnosis"),
        evictions=ended.evictions,
        lost=before - (int(resumed[1]) if resumed else 0),
    )


def _seen_at(client: TrainingClient, job: int, step: int) -> None:
    for seen in client.watch(job):
        if seen.progress.step >= step:
            return
    raise RuntimeError(f"job {job} ended before step {step}: {client.status(job)}")


if __name__ == "__main__":
    run_alone(measure)
