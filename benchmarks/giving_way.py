"""Measures the cost of a preemption: a training of four processes is stopped for a more urgent job.

`python -m benchmarks.giving_way [--quick]`. No checkpoint is due before the notice. Each round measures:

- *lost*: the number of steps that the second attempt repeats.
- *free*: the time from the submission of the more urgent job until the training has left its machines. This
  includes the time between the notice and the end of the training.
- *back*: the time from the launch of the second attempt until its first new step, compared with the time from
  the launch of the first attempt until its first step.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.support import ALGORITHM, Row, make_dataset, run_alone, service, workspace
from training_service._generated import training_service_pb2 as pb
from training_service.client import TrainingClient

RANKS = 4
GRACE_SECONDS = 10.0
_COMMAND = ("python", "-m", "intent_classification.train")
_LONG, _SHORT = "10000", "1"  # epochs
_NOTICE_AFTER = 20  # steps
_SLACK = 1.25
"""The largest allowed ratio of *back* to the time of a first start.

The time that four processes take for imports alone varies by this factor.
"""
_SETTINGS = {"scheduling__queues__default__preemption__by_priority": "true", "jobs__stop_grace": "10"}


@dataclass(frozen=True, slots=True)
class Round:
    """The measurements of a round. `started` is the duration of the first start. Durations are in seconds."""

    started: float
    lost: int
    free: float
    back: float


def measure(quick: bool) -> list[Row]:
    rounds = 1 if quick else 3
    with workspace() as folder:
        make_dataset(folder, real=True)
        with (
            service(folder, command=_COMMAND, capacity=RANKS, **_SETTINGS) as server,
            TrainingClient(server.address) as client,
        ):
            found = [_round(client) for _ in range(rounds)]
    lost, free = max(each.lost for each in found), max(each.free for each in found)
    started = statistics.median(each.started for each in found)
    back = statistics.median(each.back for each in found)
    times = statistics.median(each.back / each.started for each in found)
    return [
        Row(
            f"giving-way: {RANKS} processes, steps lost (most of {rounds})",
            f"{lost}",
            "",
            "",
            "≤ 1",
            lost <= 1,
        ),
        Row(
            f"giving-way: other job submitted → capacity free (longest of {rounds})",
            f"{free:.2f} s",
            target=f"≤ {GRACE_SECONDS:.0f} s",
            met=free <= GRACE_SECONDS,
        ),
        Row(
            "giving-way: relaunched → trains on, against a first start",
            f"{back:.2f} s",
            f"{started:.2f} s",
            f"{times:.2f}",
            f"≤ {_SLACK}",
            times <= _SLACK,
        ),
    ]


def _round(client: TrainingClient) -> Round:
    victim = _submit(client, _LONG)
    started = _trains(client, victim, lambda seen: seen.progress.step > 0)
    _seen(client, victim, lambda seen: seen.progress.step >= _NOTICE_AFTER)
    asked = time.time()
    other = _submit(client, _SHORT, "high")
    stopped = _seen(client, victim, lambda seen: seen.status == pb.queuing)
    saved = stopped.progress.checkpoint.step
    if client.wait(other).status != pb.succeed:
        raise RuntimeError(f"job {other} has not succeeded: {client.status(other)}")
    back = _trains(client, victim, lambda seen: seen.attempt == 2 and seen.progress.step > saved)
    client.cancel(victim)
    client.wait(victim)
    return Round(
        started=started,
        lost=max(0, stopped.progress.step - saved),
        free=_at(stopped.moves[-1]) - asked,
        back=back,
    )


def _submit(client: TrainingClient, epochs: str, priority: str = "") -> int:
    parameters = {"EPOCHS": epochs}
    return client.submit(ALGORITHM, "1", "v1", instances=RANKS, parameters=parameters, priority=priority)


def _trains(
    client: TrainingClient, job: int, condition: Callable[[pb.GetTrainingStatusResponse], bool]
) -> float:
    """Wait for a status that meets the condition, and return the seconds from the last launch until then."""
    seen = _seen(client, job, condition)
    return time.time() - max(_at(move) for move in seen.moves if move.status == pb.launch)


def _seen(
    client: TrainingClient, job: int, condition: Callable[[pb.GetTrainingStatusResponse], bool]
) -> pb.GetTrainingStatusResponse:
    for seen in client.watch(job):
        if condition(seen):
            return seen
    raise RuntimeError(f"job {job} ended before the expected status: {client.status(job)}")


def _at(move: pb.Move) -> float:
    return move.at.ToMicroseconds() / 1e6


if __name__ == "__main__":
    run_alone(measure)
