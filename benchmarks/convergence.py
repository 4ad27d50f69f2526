"""Measures how much loss asynchronous training costs on real text, with the same number of examples.

    python -m benchmarks.convergence [--quick]

Each strategy trains in a job of the service, on four instances (with a parameter server: four workers and the
server). Its validation loss is compared with the loss of the synchronous strategy with the same optimizer.
Parameter servers train with SGD, for which their rules of staleness are derived.
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
MODEL = {"LAYERS": "2", "WIDTH": "64", "CONTEXT": "64", "BATCH_SIZE": "32"}
SERVED = {"STRATEGY": "parameter_server"}
AVERAGING, GOSSIP = {"STRATEGY": "averaging"}, {"STRATEGY": "gossip"}
SGD = {"OPTIMIZER": "sgd", "LR": "0.2"}
BASE: Mapping[str, tuple[int, Mapping[str, str]]] = {"adamw": (RANKS, {}), "sgd": (RANKS, SGD)}
STRATEGIES: Mapping[str, tuple[int, Mapping[str, str]]] = {
    "asynchronous": (RANKS + 1, {**SERVED, **SGD, "SYNCHRONY": "asynchronous"}),
    "delay_compensated": (RANKS + 1, {**SERVED, **SGD, "SYNCHRONY": "delay_compensated"}),
    "softsync, n = 1": (RANKS + 1, {**SERVED, **SGD, "SYNCHRONY": "softsync"}),
    "averaging, k = 5": (RANKS, {**AVERAGING, "LOCAL_STEPS": "5"}),
    "averaging, k = 20": (RANKS, {**AVERAGING, "LOCAL_STEPS": "20"}),
    "gossip, k = 20": (RANKS, {**GOSSIP, "LOCAL_STEPS": "20"}),
    "gossip, k = 100": (RANKS, {**GOSSIP, "LOCAL_STEPS": "100"}),
}
MOST = 1.05
_PATH = f"{Path(sys.executable).parent}:/usr/bin:/bin"


def measure(quick: bool) -> list[Row]:
    steps = 100 if quick else 600
    with workspace() as folder:
        version = prepare(corpus.FILE.path().read_bytes(), str(folder / "storage"), "dialog").version
        with (
            service(folder, capacity=RANKS + 1, command=["true"], process__path=_PATH) as server,
            TrainingClient(server.address) as client,
        ):
            losses = {
                name: _loss(client, version, ranks, {**MODEL, **parameters, "STEPS": str(steps)})
                for name, (ranks, parameters) in {**BASE, **STRATEGIES}.items()
            }
    return [
        _row(
            name, losses[name], parameters.get("OPTIMIZER", "adamw"), losses, steps * int(MODEL["BATCH_SIZE"])
        )
        for name, (_, parameters) in STRATEGIES.items()
    ]


def _row(name: str, loss: float, optimizer: str, losses: Mapping[str, float], examples: int) -> Row:
    base = losses[optimizer]
    return Row(
        f"convergence: {name}, {optimizer}, {examples:,} examples, against synchronous",
        f"{loss:.3f} nats a byte",
        f"{base:.3f}",
        f"{loss / base:.3f}",
        f"≤ {MOST}",
        loss / base <= MOST,
    )


def _loss(client: TrainingClient, version: str, ranks: int, parameters: Mapping[str, str]) -> float:
    """Run a job with these parameters, and return its validation loss."""
    job = client.submit("language-model", "dialog", version, instances=ranks, parameters=parameters)
    ended = client.wait(job, timeout=1800)
    if ended.status != pb.succeed:
        log = "".join(piece.text for piece in client.logs(job, all_ranks=True))
        raise SystemExit(f"convergence: a job has failed: {ended.message}\n{log}")
    return ended.progress.metrics["validation_loss"]


if __name__ == "__main__":
    run_alone(measure)
