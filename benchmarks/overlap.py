"""Time that ZeRO waits for sums of gradients over a slow link, with overlap against without.

    python -m benchmarks.overlap [--quick]      (as root: it makes two network namespaces)

Two ranks, each in a namespace, are joined by a link of RATE (a veth pair with a token bucket filter). They
send each bucket as soon as it is full in every other step, and all after the backward pass in the others.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from language_model.assembly import assemble
from language_model.choices import Strategy
from language_model.data import Batch
from language_model.layout import VOCABULARY, Layout
from language_model.sharded_adamw import ShardedAdamW
from trainer_kit.group import join

from benchmarks.support import Row, run_alone

RATE = "200mbit"
PORT = 29500
MODEL = Layout(world_size=2, layers=6, width=256, context=128, batch_size=16, bucket_mb=1)
STRATEGIES = (Strategy.ZERO1, Strategy.ZERO2)
TARGET = 0.7
Seconds = dict[str, list[float]]


def measure(quick: bool) -> list[Row]:
    if os.geteuid() != 0:
        return [Row("overlap: waited for sums of gradients", "not measured: it needs root")]
    with _link() as namespaces, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        ranks = [
            subprocess.Popen(
                [
                    "ip",
                    "netns",
                    "exec",
                    namespace,
                    sys.executable,
                    "-m",
                    "benchmarks.overlap",
                    "--rank",
                    folder,
                ],
                env={**os.environ, **_place(rank), "ROUNDS": "4" if quick else "10"},
            )
            for rank, namespace in enumerate(namespaces)
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


@contextmanager
def _link() -> Iterator[list[str]]:
    """Make two namespaces with a slow link between them. Its addresses are those of documentation."""
    names = [f"bench-{os.getpid()}-{end}" for end in range(2)]
    try:
        for name in names:
            _run("ip", "netns", "add", name)
        first, second = names
        _run(
            *("ip", "-n", first, "link", "add", "slow", "type", "veth"),
            *("peer", "name", "slow", "netns", second),
        )
        for end, name in enumerate(names):
            _run("ip", "-n", name, "addr", "add", f"192.0.2.{end + 1}/24", "dev", "slow")
            _run("ip", "-n", name, "link", "set", "lo", "up")
            _run("ip", "-n", name, "link", "set", "slow", "up")
            _run(
                *("tc", "-n", name, "qdisc", "add", "dev", "slow", "root"),
                *("tbf", "rate", RATE, "burst", "64kb", "latency", "400ms"),
            )
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


def _place(rank: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "192.0.2.1",
        "MASTER_PORT": str(PORT),
        "GLOO_SOCKET_IFNAME": "slow",
        "OMP_NUM_THREADS": "1",
    }


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
            if group.is_master:  # the first steps also allocate
                result = {"waited": waited, "step": step}
                cut = {name: {way: each[1:] for way, each in times.items()} for name, times in result.items()}
                (folder / strategy).write_text(json.dumps(cut))


if __name__ == "__main__":
    if "--rank" in sys.argv:
        _be_a_rank(Path(sys.argv[-1]))
    else:
        run_alone(measure)
