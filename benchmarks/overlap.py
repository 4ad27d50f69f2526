"""The time for which ZeRO waits for sums of gradients over a slow link: with gradients that are sent during
the backward pass, compared with gradients that are sent after it.

python -m benchmarks.overlap [--quick]      (as root: it makes network namespaces)

Two ranks, each in an emulated machine (`links`), are joined by links of RATE. In every second step, they send
each bucket as soon as it is full. In the other steps, they send all buckets after the backward pass.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from language_model.assembly import assemble
from language_model.choices import Strategy
from language_model.data import Batch
from language_model.layout import VOCABULARY, Layout
from language_model.sharded_adamw import ShardedAdamW
from trainer_kit.group import join

from benchmarks.links import Machine, emulated, missing, place
from benchmarks.support import Row, run_alone

RATE = "200mbit"
MODEL = Layout(world_size=2, layers=6, width=256, context=128, batch_size=16, bucket_mb=1)
STRATEGIES = (Strategy.ZERO1, Strategy.ZERO2)
TARGET = 0.7
Seconds = dict[str, list[float]]


def measure(quick: bool) -> list[Row]:
    if lacking := missing():
        return [Row("overlap: waited for sums of gradients", f"not measured: it needs {lacking}")]
    with emulated([Machine(RATE)] * 2) as machines, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        ranks = [
            machine.start(
                *(sys.executable, "-m", "benchmarks.overlap", "--rank", folder),
                environment={**place(rank, machines), "ROUNDS": "4" if quick else "10"},
            )
            for rank, machine in enumerate(machines)
        ]
        try:
            if any(rank.wait(timeout=600) for rank in ranks):
                raise SystemExit("overlap: a rank failed")
        finally:
            for rank in ranks:
                rank.kill()
        return [_row(json.loads((Path(folder) / strategy).read_text()), strategy) for strategy in STRATEGIES]


def _row(seconds: dict[str, Seconds], strategy: Strategy) -> Row:
    waited, step = ({name: statistics.median(times) for name, times in of.items()} for of in seconds.values())
    ratio = waited["overlap"] / waited["after"]
    return Row(
        f"overlap: {strategy}, waited for sums of gradients in a step, link of {RATE}",
        f"{waited['overlap']:.2f} s (step {step['overlap']:.2f} s)",
        f"{waited['after']:.2f} s (step {step['after']:.2f} s)",
        f"{ratio:.2f}",
        f"≤ {TARGET}",
        met=ratio <= TARGET,
    )


def _be_a_rank(folder: Path) -> None:
    with join() as group:
        for strategy in STRATEGIES:
            learner = assemble(replace(MODEL, strategy=strategy), group)
            assert isinstance(learner.optimizer, ShardedAdamW)
            buckets = learner.optimizer.gradients
            waited: Seconds = {"overlap": [], "after": []}
            step: Seconds = {"overlap": [], "after": []}
            shape = (MODEL.batch_size, MODEL.context)
            batch = Batch(torch.randint(VOCABULARY, shape), torch.randint(VOCABULARY, shape))
            for number in range(int(os.environ["ROUNDS"]) + 1):
                for way in waited:
                    group.total(0.0)  # both ranks begin at the same time
                    buckets.overlaps, before = way == "overlap", buckets.seconds_waited
                    began = time.perf_counter()
                    learner.learn(batch, 0.001, number + 1)
                    step[way].append(time.perf_counter() - began)
                    waited[way].append(buckets.seconds_waited - before)
            if group.is_master:  # the first steps do not count: they also allocate memory
                result = {"waited": waited, "step": step}
                cut = {name: {way: each[1:] for way, each in times.items()} for name, times in result.items()}
                (folder / strategy).write_text(json.dumps(cut))


if __name__ == "__main__":
    if "--rank" in sys.argv:
        _be_a_rank(Path(sys.argv[-1]))
    else:
        run_alone(measure)
