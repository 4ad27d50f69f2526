"""Compares the loss of asynchronous training with that of synchronous training, on the same number of
examples of real text.

    python -m benchmarks.convergence [--quick]

Each strategy trains in a job of the service, on four instances (with a parameter server, on five: four
workers and the server). Its validation loss is compared with the loss of the synchronous strategy with the
same optimizer. Parameter servers train with SGD, because their rules for stale gradients were derived for
SGD. With each strategy, a worker computes a gradient from 8 examples. So if an update uses one gradient
instead of four, there are four times as many updates. The learning rate of each strategy, including the
synchronous one, is the best of those that were tried, with two exceptions (docs/parallelism-data.md):
`softsync` and `delay_compensated`.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from language_model import corpus
from language_model.prepare_data import prepare

from benchmarks.support import Row, run_alone, service, workspace
from training_service._generated import training_service_pb2 as pb
from training_service.client import TrainingClient

RANKS = 4
MODEL = {"LAYERS": "2", "WIDTH": "64", "CONTEXT": "64"}
BATCH_SIZE = 32
SERVED = {"STRATEGY": "parameter_server"}
ADAMW = {"LR": "0.006"}
AVERAGING, GOSSIP = {"STRATEGY": "averaging", **ADAMW}, {"STRATEGY": "gossip", **ADAMW}
SLOW = {"LR": "0.003", "SLOW_MOMENTUM": "0.4"}
SGD = {"OPTIMIZER": "sgd", "LR": "0.1"}
ONE_GRADIENT = {**SERVED, "OPTIMIZER": "sgd", "LR": "0.025", "BATCH_SIZE": str(BATCH_SIZE // RANKS)}
"""The parameters of strategies in which each update uses the gradient of only one worker."""
BASE: Mapping[str, tuple[int, Mapping[str, str]]] = {"adamw": (RANKS, ADAMW), "sgd": (RANKS, SGD)}
STRATEGIES: Mapping[str, tuple[int, Mapping[str, str]]] = {
    "asynchronous": (RANKS + 1, {**ONE_GRADIENT, "SYNCHRONY": "asynchronous"}),
    "delay_compensated": (RANKS + 1, {**ONE_GRADIENT, "SYNCHRONY": "delay_compensated"}),
    "softsync, n = 1": (RANKS + 1, {**SERVED, **SGD, "LR": "0.05", "SYNCHRONY": "softsync"}),
    "averaging, k = 5": (RANKS, {**AVERAGING, "LOCAL_STEPS": "5"}),
    "averaging, k = 20": (RANKS, {**AVERAGING, **SLOW, "LOCAL_STEPS": "20"}),
    "gossip, k = 20": (RANKS, {**GOSSIP, "LOCAL_STEPS": "20"}),
    "gossip, k = 100": (RANKS, {**GOSSIP, "LOCAL_STEPS": "100"}),
}
MOST = 1.05
_PATH = f"{Path(sys.executable).parent}:/usr/bin:/bin"


def measure(quick: bool) -> list[Row]:
    examples = BATCH_SIZE * (100 if quick else 600)
    with workspace() as folder:
        version = prepare(corpus.FILE.path().read_bytes(), str(folder / "storage"), "dialog").version
        with (
            service(folder, capacity=RANKS + 1, command=["true"], process__path=_PATH) as server,
            TrainingClient(server.address) as client,
        ):
            metrics = {
                name: _metrics(client, version, ranks, parameters, examples)
                for name, (ranks, parameters) in {**BASE, **STRATEGIES}.items()
            }
    return [
        _row(name, metrics[name], parameters.get("OPTIMIZER", "adamw"), metrics, examples)
        for name, (_, parameters) in STRATEGIES.items()
    ]


def _row(
    name: str,
    own: Mapping[str, float],
    optimizer: str,
    metrics: Mapping[str, Mapping[str, float]],
    examples: int,
) -> Row:
    loss, base = own["validation_loss"], metrics[optimizer]["validation_loss"]
    staleness = f", staleness {own['staleness_mean']:.2f}" if "staleness_mean" in own else ""
    return Row(
        f"convergence: {name}, {optimizer}, {examples:,} examples, against synchronous",
        f"{loss:.3f} nats a byte{staleness}",
        f"{base:.3f}",
        f"{loss / base:.3f}",
        f"≤ {MOST}",
        loss / base <= MOST,
    )


def _metrics(
    client: TrainingClient, version: str, ranks: int, parameters: Mapping[str, str], examples: int
) -> Mapping[str, float]:
    """Return the last metrics of a job that trains with this number of examples."""
    batch_size = parameters.get("BATCH_SIZE", str(BATCH_SIZE))
    size = {"BATCH_SIZE": batch_size, "STEPS": str(examples // int(batch_size))}
    job = client.submit(
        "language-model", "dialog", version, instances=ranks, parameters={**MODEL, **parameters, **size}
    )
    ended = client.wait(job, timeout=1800)
    if ended.status != pb.succeed:
        log = "".join(piece.text for piece in client.logs(job, all_ranks=True))
        raise SystemExit(f"convergence: a job has failed: {ended.message}\n{log}")
    return ended.progress.metrics


if __name__ == "__main__":
    run_alone(measure)
