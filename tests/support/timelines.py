"""Measured passes, as jobs with a pipeline write them."""

from typing import Any

Order = list[tuple[str, int, int]]
"""The passes of a rank: kind, stage and micro-batch."""


def gpipe(ranks: int, micro_batches: int, *, forward: float = 1.0, backward: float = 2.0) -> dict[str, Any]:
    """Return the passes of GPipe if all passes of a kind take equally long."""
    kinds = ("forward", "backward")
    orders = [
        [(kind, rank, micro_batch) for kind in kinds for micro_batch in range(micro_batches)]
        for rank in range(ranks)
    ]
    return pipeline(orders, "gpipe", ranks, micro_batches, {"forward": forward, "backward": backward})


def pipeline(
    orders: list[Order],
    schedule: str,
    stages: int,
    micro_batches: int,
    seconds: dict[str, float],
    *,
    flushed: bool = True,
) -> dict[str, Any]:
    """Return the passes of ranks in these orders. `seconds` has the seconds of a pass by its kind."""
    return {
        "schedule": schedule,
        "ranks": len(orders),
        "stages": stages,
        "micro_batches": micro_batches,
        "flushed": flushed,
        "steps": 20,
        "passes": [
            [
                {"kind": kind, "stage": stage, "micro_batch": micro_batch, "seconds": seconds[kind]}
                for kind, stage, micro_batch in order
            ]
            for order in orders
        ],
    }
