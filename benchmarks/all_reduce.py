"""Compares our all-reduce algorithms with formulas (bytes and messages) and with gloo's all-reduce (time).

    python -m benchmarks.all_reduce [--quick]

Groups of 2 to 8 processes sum a tensor of MEGABYTES MiB with gloo and with each algorithm, in turn. The table
shows the bytes and messages that the busiest rank sends, and the slowest rank's median time divided by that
of gloo. With fewer cores than processes, the ratio depends more on the kernel's scheduler than on the
algorithm.
"""

import statistics
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from language_model.all_reduce import theory
from language_model.all_reduce.choosing import by_hand
from language_model.all_reduce.theory import Traffic
from language_model.all_reduce.topology import BY_HAND
from language_model.all_reduce.wire import Wire
from trainer_kit.group import Group

from benchmarks import forked_group
from benchmarks.support import Row, run_alone

MEGABYTES = 4
NODE_SIZE = 2


def measure(quick: bool) -> list[Row]:
    sizes, rounds = ([2, 3, 4], 3) if quick else ([2, 3, 4, 6, 8], 15)
    return [
        row for size in sizes for row in _rows_of(size, forked_group.run(partial(_sums, rounds=rounds), size))
    ]


def _rows_of(size: int, ranks: list[dict[str, Any]]) -> list[Row]:
    library = max(statistics.median(rank["library"]) for rank in ranks)
    rows = []
    for topology in BY_HAND:
        counted = [rank[topology] for rank in ranks]
        sent = max(Traffic(Fraction(c["bytes"], MEGABYTES * 2**20), c["messages"]) for c in counted)
        formula = max(theory.of_rank(topology, rank, size, NODE_SIZE) for rank in range(size))
        taken = max(statistics.median(c["seconds"]) for c in counted)
        rows.append(
            Row(
                f"{size} processes, {topology}",
                _text_of(sent),
                _text_of(formula),
                f"{taken / library:.1f} x gloo's time",
                "counted = formula",
                # If the number of elements is not a multiple of the group's size, some chunks have one
                # element more than others, so the bytes differ slightly from the formula.
                met=abs(float(sent.share - formula.share)) < 1e-5 and sent.messages == formula.messages,
            )
        )
    return rows


def _text_of(traffic: Traffic) -> str:
    return f"{float(traffic.share):.3f} S in {traffic.messages} messages"


def _sums(group: Group, rounds: int) -> dict[str, Any]:
    tensor = torch.ones(MEGABYTES * 2**20 // 4)
    seen: dict[str, Any] = {"library": []}
    for topology in BY_HAND:
        seen[topology] = {"seconds": []}
    for _ in range(rounds):
        seen["library"].append(_seconds(lambda: dist.all_reduce(tensor.clone())))
        for topology in BY_HAND:
            wire, all_reduce = Wire(), by_hand(topology, group.size, NODE_SIZE)
            taken = _seconds(lambda: all_reduce(tensor.clone(), wire))  # noqa: B023  # it is called at once
            seen[topology]["seconds"].append(taken)
            seen[topology] |= {"bytes": wire.sent.bytes, "messages": wire.sent.messages}
    return seen


def _seconds(action: Callable[[], object]) -> float:
    dist.barrier()
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


if __name__ == "__main__":
    run_alone(measure)
