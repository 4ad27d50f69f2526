"""Idle time of pipelines and repeated work of checkpointing: measured beside the formulas.

    python -m benchmarks.schedules [--quick]

Idle time: the order of passes of each rank of a real pipeline is recorded, then replayed with passes of one
unit of time. The idle share is the bubble, independent of the machine. Repeated work: the floating point
operations of a step, by PyTorch's own counter, beside those of a step without checkpointing.
"""

import json
import os
import socket
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from language_model import theory
from language_model.assembly import assemble
from language_model.choices import Schedule
from language_model.data import Batch
from language_model.layout import Layout
from torch.distributed.pipelining import PipelineStage
from torch.multiprocessing.spawn import start_processes
from torch.utils.flop_counter import FlopCounterMode
from trainer_kit.group import Group, join

from benchmarks.support import Row, run_alone

MODEL = Layout(layers=8, width=32, context=32, batch_size=16)
_CLOSE = 0.01


class Pass(NamedTuple):
    """One pass of one micro-batch through one stage."""

    is_forward: bool
    stage: int
    micro_batch: int


def measure(quick: bool) -> list[Row]:
    shapes = [(2, 4)] if quick else [(2, 4), (2, 8), (4, 4), (4, 8)]
    return [
        *(
            _waiting(replace(MODEL, world_size=ranks, pipeline=ranks, micro_batches=parts, schedule=schedule))
            for ranks, parts in shapes
            for schedule in Schedule
        ),
        *_done_twice(),
    ]


def _waiting(layout: Layout) -> Row:
    counted, formula = idle_share(_passes_of(layout), layout.stages), theory.bubble(layout)
    return Row(
        f"{layout.schedule}, {layout.pipeline} ranks, {layout.micro_batches} micro-batches: waits",
        f"{counted:.1%}",
        f"{formula:.1%}",
        "",
        "counted = formula",
        abs(counted - formula) < _CLOSE,
    )


def idle_share(orders: Sequence[Sequence[Pass]], stages: int) -> float:
    """Return the idle share of ranks that do their passes in these orders, one unit of time each."""
    ends: dict[Pass, int] = {}
    now, done = [0] * len(orders), [0] * len(orders)
    while any(count < len(order) for count, order in zip(done, orders, strict=True)):
        before = len(ends)
        for rank, order in enumerate(orders):
            while done[rank] < len(order) and all(each in ends for each in _needs(order[done[rank]], stages)):
                wanted = order[done[rank]]
                ready = max((ends[each] for each in _needs(wanted, stages)), default=0)
                now[rank] = ends[wanted] = max(now[rank], ready) + 1
                done[rank] += 1
        if len(ends) == before:
            raise RuntimeError("these orders form a deadlock")
    return 1 - len(ends) / (len(orders) * max(now))


def _needs(wanted: Pass, stages: int) -> Iterator[Pass]:
    is_forward, stage, micro_batch = wanted
    if is_forward and stage > 0:
        yield Pass(True, stage - 1, micro_batch)
    if not is_forward:
        yield Pass(True, stage, micro_batch)
        if stage < stages - 1:
            yield Pass(False, stage + 1, micro_batch)


def _passes_of(layout: Layout) -> list[list[Pass]]:
    """Return the passes of a step of each rank of a real pipeline, in order."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        start_processes(  # type: ignore[no-untyped-call]
            _be_a_rank, (layout, folder, port), nprocs=layout.world_size, start_method="spawn"
        )
        orders = [json.loads((Path(folder) / str(rank)).read_text()) for rank in range(layout.world_size)]
    return [[Pass(*each) for each in order] for order in orders]


def _be_a_rank(rank: int, layout: Layout, folder: str, port: int) -> None:
    size = str(layout.world_size)
    os.environ |= {"WORLD_SIZE": size, "RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": size}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    order: list[Pass] = []
    for name, is_forward in (("forward_one_chunk", True), ("backward_one_chunk", False)):
        _write_down(name, is_forward, order)
    with join() as group:
        _take_a_step(layout, group)
    (Path(folder) / str(rank)).write_text(json.dumps(order))


def _write_down(name: str, is_forward: bool, order: list[Pass]) -> None:
    original = getattr(PipelineStage, name)

    def noted(stage: Any, micro_batch: int, *args: Any, **options: Any) -> Any:
        order.append(Pass(is_forward, stage.stage_index, micro_batch))
        return original(stage, micro_batch, *args, **options)

    setattr(PipelineStage, name, noted)


def _take_a_step(layout: Layout, group: Group) -> None:
    tokens = torch.randint(0, 256, (layout.batch_size, layout.context + 1))
    assemble(layout, group).learn(Batch(tokens[:, :-1], tokens[:, 1:]), layout.lr)


def _done_twice() -> Iterator[Row]:
    plain = _operations(MODEL)
    for checkpointing in ("selective", "every:2", "full"):
        layout = replace(MODEL, checkpointing=checkpointing)
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
        _take_a_step(layout, Group(rank=0, size=1, device=torch.device("cpu")))
    return int(counter.get_total_flops())


if __name__ == "__main__":
    run_alone(measure)
