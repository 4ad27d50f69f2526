"""Compares the idle time of pipelines, and the work that activation checkpointing repeats, with formulas.

    python -m benchmarks.schedules [--quick]

Idle time: the passes of each rank of a real pipeline are measured, then laid out by dependency, as `trainctl
plot --timeline` draws them. This is done twice. First, each pass counts as one unit of time, so that the idle
share does not depend on the machine. Then, each pass counts with its CPU time, so that stages that take
longer than others add to the idle share. Repeated work: the floating point operations that checkpointing adds
to a step, relative to the operations of a step without checkpointing. PyTorch's own counter counts them.
"""

import json
import os
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from language_model import theory
from language_model.assembly import assemble
from language_model.choices import Attention, Schedule
from language_model.data import Batch
from language_model.layout import Layout
from language_model.pipeline_rules import WHOLE_BATCHES
from torch.multiprocessing.spawn import start_processes
from torch.utils.flop_counter import FlopCounterMode
from trainer_kit.group import Group, join

from benchmarks.support import Row, run_alone
from training_service.client import timelines

MODEL = Layout(layers=8, width=32, context=32, batch_size=16)
PIPELINED = Layout(layers=16, width=128, context=64, batch_size=32)
"""A model whose layers take most of the time, so that stages take almost equally long."""
STEPS = 20
"""The number of steps whose CPU times are measured."""
_CLOSE = 0.01
_NEAR = 0.02
"""The largest allowed difference between the idle share by CPU time and the formula.

They differ because the last stage also computes scores and loss.
"""


def measure(quick: bool) -> list[Row]:
    shapes = {2: [4]} if quick else {2: [4, 8], 4: [4, 8]}
    return [
        *(row for ranks, parts in shapes.items() for row in _waiting(ranks, parts)),
        *_done_twice(),
    ]


def _waiting(ranks: int, parts: list[int]) -> Iterator[Row]:
    layouts = [
        replace(PIPELINED, world_size=ranks, pipeline=ranks, micro_batches=micro_batches, schedule=schedule)
        for schedule in Schedule
        for micro_batches in ([1] if schedule in WHOLE_BATCHES else parts)
    ]
    for passes in _passes_of(layouts):
        title = "{schedule}, {ranks} ranks, {micro_batches} micro-batches: idle".format(**passes)
        for of_what, content, tolerance in (
            ("passes of one unit", _with_equal_passes(passes), _CLOSE),
            ("by CPU time", passes, _NEAR),
        ):
            timeline = timelines.read([json.dumps(content).encode()])
            formula = timeline.measured.formula
            yield Row(
                f"{title}, {of_what}",
                f"{timeline.idle:.1%}",
                f"{formula:.1%}",
                "",
                f"within {tolerance:.0%} of the formula",
                abs(timeline.idle - formula) < tolerance,
            )


def _with_equal_passes(passes: dict[str, Any]) -> dict[str, Any]:
    return {**passes, "passes": [[{**each, "seconds": 1.0} for each in order] for order in passes["passes"]]}


def _passes_of(layouts: list[Layout]) -> list[dict[str, Any]]:
    """Train with each layout, in one group of real processes, and return the measured passes of each."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        start_processes(  # type: ignore[no-untyped-call]
            _be_a_rank, (layouts, folder, port), nprocs=layouts[0].world_size, start_method="spawn"
        )
        return [json.loads((Path(folder) / str(number)).read_text()) for number in range(len(layouts))]


def _be_a_rank(rank: int, layouts: list[Layout], folder: str, port: int) -> None:
    size = str(layouts[0].world_size)
    os.environ |= {"WORLD_SIZE": size, "RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": size}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with join() as group:
        for number, layout in enumerate(layouts):
            timeline = _take_steps(layout, group, STEPS)
            if group.is_master:
                (Path(folder) / str(number)).write_text(json.dumps(timeline))


def _take_steps(layout: Layout, group: Group, steps: int) -> dict[str, Any] | None:
    learner = assemble(layout, group)
    for step in range(1, steps + 1):
        tokens = torch.randint(0, 256, (layout.batch_size, layout.context + 1))
        learner.learn(Batch(tokens[:, :-1], tokens[:, 1:]), layout.lr, step)
    learner.flush()
    return learner.timeline()


def _done_twice() -> Iterator[Row]:
    # With explicit attention, because PyTorch does not count the products inside its fused kernel for CPUs.
    model = replace(MODEL, attention=Attention.EXPLICIT)
    plain = _operations(model)
    for checkpointing in ("selective", "keep_products", "every:2", "full"):
        layout = replace(model, checkpointing=checkpointing)
        counted, formula = _operations(layout) / plain - 1, theory.recomputed(layout)
        yield Row(
            f"CHECKPOINTING={checkpointing}: work done twice",
            f"{counted:.1%}",
            f"{formula:.1%}",
            "",
            "within 3 %",
            abs(counted - formula) < 0.03,
        )


def _operations(layout: Layout) -> int:
    """Return the floating point operations of the matrix products in a step of one process."""
    with FlopCounterMode(display=False) as counter:
        _take_steps(layout, Group(rank=0, size=1, device=torch.device("cpu")), steps=1)
    return int(counter.get_total_flops())


if __name__ == "__main__":
    run_alone(measure)
