"""Trains one model with each strategy, and compares its memory and traffic with theory.

    python -m benchmarks.parallelism --dataset ID --version HASH

The service is the one at TRAINING_SERVICE_ADDRESS. This machine must be able to read the service's models.
`make demo-parallel` sets this up.
"""

import argparse
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import fsspec
from language_model import theory
from language_model.layout import Layout
from rich.console import Console
from rich.table import Table

from training_service.client import TrainingClient

PIPELINE = {"PIPELINE": "2", "MICRO_BATCHES": "4"}
SEQUENCE = {"TENSOR": "2", "SEQUENCE_PARALLEL": "true"}
DROPOUT = {"DROPOUT": "0.1"}

STRATEGIES: Mapping[str, tuple[int, Mapping[str, str]]] = {
    "one process": (1, {}),
    "DDP": (2, {}),
    "DDP, activations recomputed": (2, {"CHECKPOINTING": "full"}),
    "DDP, scores kept": (2, {"ATTENTION": "explicit"}),
    "DDP, attention recomputed": (2, {"CHECKPOINTING": "selective"}),
    "DDP, activations offloaded": (2, {"OFFLOAD": "activations"}),
    "one process, layer by layer": (1, {"OFFLOAD": "layers", "MICRO_BATCHES": "4"}),
    "layer by layer (L2L)": (2, {"OFFLOAD": "layers", "MICRO_BATCHES": "4"}),
    "ZeRO-1": (2, {"STRATEGY": "zero1"}),
    "ZeRO-2": (2, {"STRATEGY": "zero2"}),
    "ZeroRedundancyOptimizer": (2, {"STRATEGY": "zero_redundancy_optimizer"}),
    "SHARD_GRAD_OP": (2, {"STRATEGY": "shard_grad_op"}),
    "ZeRO-3": (2, {"STRATEGY": "zero3"}),
    "naive model parallelism": (2, {"PIPELINE": "2", "SCHEDULE": "naive"}),
    "GPipe": (2, {**PIPELINE, "SCHEDULE": "gpipe"}),
    "1F1B": (2, PIPELINE),
    "interleaved 1F1B": (2, {**PIPELINE, "SCHEDULE": "interleaved"}),
    "PipeDream": (2, {"PIPELINE": "2", "SCHEDULE": "pipedream"}),
    "tensor": (2, {"TENSOR": "2"}),
    "tensor, sequence": (2, SEQUENCE),
    "tensor, sequence, loss": (2, {**SEQUENCE, "LOSS_PARALLEL": "true"}),
    "ZeRO-2 x tensor": (4, {"STRATEGY": "zero2", "TENSOR": "2"}),
    "ZeRO-3 x tensor, sequence": (4, {"STRATEGY": "zero3", **SEQUENCE}),
    "1F1B x ZeRO-1": (4, {**PIPELINE, "STRATEGY": "zero1"}),
    "dropout: one process": (1, DROPOUT),
    "dropout: DDP, attention recomputed": (2, {**DROPOUT, "CHECKPOINTING": "selective"}),
    "dropout: 1F1B x tensor, sequence": (4, {**DROPOUT, **PIPELINE, **SEQUENCE}),
    "1F1B x DDP x tensor": (8, {**PIPELINE, "TENSOR": "2"}),
}
"""The number of processes and the parameters of each strategy."""


class Measured(NamedTuple):
    """The result of a job."""

    name: str
    layout: Layout
    metrics: Mapping[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(prog="parallelism", description=__doc__.partition("\n")[0])
    parser.add_argument("--dataset", required=True, metavar="ID")
    parser.add_argument("--version", required=True, metavar="HASH")
    parser.add_argument("--steps", default="20", help="number of steps of each training run (default: 20)")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=STRATEGIES, help="(default: all)")
    options = parser.parse_args()

    console, measured = Console(width=160), []
    with TrainingClient() as client:
        jobs = {
            name: client.submit(
                "language-model",
                options.dataset,
                options.version,
                parameters={**parameters, "STEPS": options.steps},
                instances=ranks,
            )
            for name, (ranks, parameters) in STRATEGIES.items()
            if name in (options.only or STRATEGIES)
        }
        for name, job in jobs.items():
            ended = client.wait(job)
            if not ended.model_uri or not (metrics := metrics_of(ended.model_uri)):
                raise SystemExit(f"job {job} ({name}) has made no model: {ended.message}")
            console.print(f"job {job}: {name}, loss {metrics['loss']:.6f}")
            measured.append(Measured(name, _layout_of(name, options.steps), metrics))
    console.print(table_of(measured))


def table_of(measured: list[Measured]) -> Table:
    """Return a table with a row for each strategy. If there is a formula for a measured value, the value by
    the formula follows it.
    """
    title = "measured beside theory, in KB: memory of a rank, and bytes that it sends or copies in a step"
    table = Table(title=title)
    columns = ("ranks", "loss", "states", "theory", "peak", "host", "copied", "theory", "sent", "theory")
    for column in ("strategy", *columns, "bubble"):
        table.add_column(column, justify="left" if column == "strategy" else "right")
    for name, layout, result in measured:
        expected = theory.memory(layout)
        states = result["parameter_bytes"] + result["gradient_bytes"] + result["optimizer_bytes"]
        table.add_row(
            name,
            str(layout.world_size),
            f"{result['loss']:.6f}",
            _kilobytes(states),
            _kilobytes(expected.parameters + expected.gradients + expected.optimizer),
            _kilobytes(result["peak_bytes"]),
            _kilobytes(result["host_peak_bytes"]),
            _kilobytes(result["to_host_bytes"] + result["to_device_bytes"]),
            _kilobytes(sum(theory.offloaded(layout))),
            _kilobytes(result["sent_bytes"]),
            _kilobytes(theory.bytes_sent(layout)),
            f"{theory.bubble(layout):.0%}",
        )
    return table


def _kilobytes(size: float) -> str:
    return f"{size / 1000:,.1f}"


def metrics_of(model_uri: str) -> dict[str, float]:
    """Return the metrics in the model's manifest, or an empty dict if there is no model."""
    try:
        with fsspec.open(f"{model_uri}/manifest.json") as file:
            manifest: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return {}
    metrics: dict[str, float] = manifest["metrics"]
    return metrics


def _layout_of(name: str, steps: str) -> Layout:
    """Return the layout of the strategy, read from the variables that the processes of its job get."""
    ranks, parameters = STRATEGIES[name]
    with _environment({**parameters, "STEPS": steps, "WORLD_SIZE": str(ranks)}):
        return Layout.from_environment()


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    yield
    os.environ.clear()
    os.environ.update(before)


if __name__ == "__main__":
    main()
