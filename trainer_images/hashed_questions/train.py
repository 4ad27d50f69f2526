"""Trains with a server (rank 0) and workers: `python -m hashed_questions.train`.

The objective is the mean loss of the training questions plus L1 times the sum of the absolute weights.
"""

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Self

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from question_features import labels, load_sparse, shares
from torch import nn
from torch.optim import SGD
from trainer_kit import checkpoints, environment, meeting, process, seeds
from trainer_kit.artifacts import publishing
from trainer_kit.checkpoints.following import ending_with_leader
from trainer_kit.errors import DataError, ParameterError, TrainingError
from trainer_kit.group import Group
from trainer_kit.job import Job
from trainer_kit.progress import Reporter, reporting

from hashed_questions.server import Server
from hashed_questions.sparse_gradient import SparseBatch
from hashed_questions.updates import Update, Weights
from hashed_questions.wire import SERVER, Kind, Request, Wire

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parameters:
    """The parameters. Each is set by the environment variable with its name in upper case."""

    epochs: int
    batch_size: int
    """The number of questions of all workers in a step."""
    lr: float
    l1: float
    hash_bits: int
    """Terms are hashed to 2^HASH_BITS keys."""
    update: Update
    max_delay: int
    """The maximum number of steps by which the weights may be out of date when a worker gets them."""
    kkt_filter: bool
    """Whether workers leave out keys whose weights are 0 and will probably stay 0."""
    compensation: float
    seed: int

    @classmethod
    def from_environment(cls) -> Self:
        """Read the parameters. Raises ParameterError, which names the first invalid one."""
        integer = environment.integer
        return cls(
            epochs=integer("EPOCHS", 10, at_least=1, at_most=10_000),
            batch_size=integer("BATCH_SIZE", 64, at_least=1, at_most=1_000_000),
            lr=environment.positive_number("LR", 2.0),
            l1=environment.fraction("L1", 1e-4),
            hash_bits=integer("HASH_BITS", 16, at_least=1, at_most=20),
            update=environment.choice("UPDATE", Update, Update.PROXIMAL),
            max_delay=integer("MAX_DELAY", 0, at_least=0, at_most=1000),
            kkt_filter=environment.flag("KKT_FILTER", False),
            compensation=environment.positive_number("COMPENSATION", 0.04),
            seed=integer("SEED", 1, at_least=0, at_most=seeds.LARGEST),
        )


@dataclass(frozen=True)
class Questions:
    """The questions of a split."""

    terms: Sequence[NDArray[np.int64]]
    labels: NDArray[np.int32]

    def batch(self, numbers: NDArray[np.int64]) -> SparseBatch:
        """Return the questions with these numbers."""
        return SparseBatch.of([self.terms[number] for number in numbers], self.labels[numbers])


@dataclass(frozen=True)
class Evaluation:
    """Judges the weights of the server."""

    found: Questions
    test: Questions
    weights: Weights

    def scores(self, l1: float) -> dict[str, float]:
        """Return the objective, the accuracy on the test questions, and the number of nonzero weights."""
        batch = self.found.batch(np.arange(len(self.found.terms)))
        _, loss = batch.gradient(self.weights.rows(batch.keys))
        unseen = self.test.batch(np.arange(len(self.test.terms)))
        chosen = unseen.scores(self.weights.rows(unseen.keys)).argmax(1)
        penalty = l1 * float(np.abs(self.weights.values).sum(dtype=np.float64))
        return {
            "objective": loss / len(self.found.terms) + penalty,
            "test_accuracy": float((chosen == unseen.labels).mean()),
            "nonzero_weights": float(np.count_nonzero(self.weights.values)),
        }


@dataclass(frozen=True)
class Plan:
    """The questions from which each worker learns in each step. All processes make the same plan."""

    parameters: Parameters
    questions: int
    workers: int

    def __post_init__(self) -> None:
        """Check that the parameters fit the questions and the workers."""
        if self.parameters.kkt_filter and self.parameters.update is Update.PROXIMAL_SVRG:
            raise ParameterError(
                "KKT_FILTER=true cannot be combined with UPDATE=proximal_svrg: a worker does not know the "
                "gradient of all examples, which the server adds"
            )
        if self.parameters.batch_size % self.workers:
            raise ParameterError(
                f"BATCH_SIZE {self.parameters.batch_size} cannot be divided evenly among {self.workers} "
                "workers (all instances except the first, which is the server)"
            )
        if not self.steps:
            raise DataError(
                f"{self.questions} questions do not fill a step: lower BATCH_SIZE to at most {self.questions}"
            )

    @property
    def steps(self) -> int:
        """The number of steps of an epoch."""
        return self.questions // self.parameters.batch_size

    @property
    def total(self) -> int:
        """The number of steps of all epochs."""
        return self.steps * self.parameters.epochs

    def end_of_epoch(self, step: int) -> int:
        """Return the number of steps up to the end of this step's epoch. Steps count from 0."""
        return (step // self.steps + 1) * self.steps

    def of_epoch(self, epoch: int) -> NDArray[np.int64]:
        """Return the numbers of the questions in this epoch, of shape (steps, workers, questions)."""
        each = self.parameters.batch_size // self.workers
        return shares(self.questions, each, self.workers, self.parameters.seed, epoch)


def train(group: Group) -> None:
    """Train in this process, as the server or as a worker."""
    job, parameters = Job.from_environment(), Parameters.from_environment()
    if group.size == 1:
        raise ParameterError("WORLD_SIZE 1 leaves the server no worker: take at least 2 instances")
    found, test = (
        Questions(*load_sparse(job.data_uri, split, 2**parameters.hash_bits)) for split in ("train", "test")
    )
    plan = Plan(parameters, len(found.terms), group.size - 1)
    names = labels(job.data_uri)
    peers = dist.new_group(
        backend="gloo", timeout=timedelta(seconds=meeting.patience())
    )  # weights are in host memory, which NCCL does not send
    with reporting(group) as reporter:
        if group.rank != SERVER:
            with ending_with_leader():
                work(plan, found, Wire(len(names), peers), group.rank - 1, _begun(peers))
            return
        weights = Weights(
            2**parameters.hash_bits,
            len(names),
            parameters.update,
            lr=parameters.lr,
            l1=parameters.l1,
            compensation=parameters.compensation,
        )
        scores = serve(plan, weights, Evaluation(found, test, weights), peers, reporter)
        log.info("test accuracy %.3f on %d questions", scores["test_accuracy"], len(test.terms))
        manifest = {"job_id": job.job_id, "hash_bits": parameters.hash_bits, **scores}
        with publishing(job.model_uri, manifest, reporter) as folder:
            kept = np.flatnonzero(weights.values.any(1))
            np.savez(folder / "model.npz", keys=kept, rows=weights.values[kept])
            (folder / "labels.json").write_text(json.dumps(names), encoding="utf-8")


def serve(
    plan: Plan, weights: Weights, evaluation: Evaluation, peers: dist.ProcessGroup, reporter: Reporter
) -> dict[str, float]:
    """Take the remaining steps as the server, and return the scores of the last epoch."""
    parameters, size, scores = plan.parameters, plan.parameters.batch_size, dict[str, float]()
    alone = Group(SERVER, 1, torch.device("cpu"))  # the workers have nothing to save
    unused = nn.Linear(1, 1)  # `kept` needs a model, but the whole state is in `weights`
    with checkpoints.kept(alone, unused, SGD(unused.parameters(), 1.0), weights=weights) as run:
        _begun(peers, run.steps)
        server = Server(weights, max_delay=parameters.max_delay, applied=run.steps, group=peers)
        is_mid_epoch = run.steps % plan.steps > 0
        of_anchor = plan.end_of_epoch(run.steps) if is_mid_epoch else run.steps
        server.start(of_anchor if weights.has_anchor else plan.total)
        while run.steps < plan.total:
            end = plan.end_of_epoch(run.steps)
            if weights.has_anchor and run.steps % plan.steps == 0:
                server.whole(plan.questions, until=end)
            for applied, loss in server.steps(end, size):
                if not math.isfinite(loss):
                    raise TrainingError(f"the loss is not finite in step {applied}: try a smaller LR")
                run.step(save=applied == end)
                epoch = -(-applied // plan.steps)
                reporter.report(
                    step=applied,
                    total_steps=plan.total,
                    epoch=epoch,
                    total_epochs=parameters.epochs,
                    examples=size,
                    loss=loss / size,
                )
            scores = evaluation.scores(parameters.l1) | server.costs()
            reporter.report(**scores)  # type: ignore[arg-type]  # all of these are metrics
        server.end()
    return scores or evaluation.scores(parameters.l1)  # no scores yet if earlier attempts did all steps


def work(plan: Plan, found: Questions, wire: Wire, number: int, begun: int) -> None:
    """Compute gradients for all remaining steps as worker `number`, counted from 0."""
    parameters = plan.parameters
    is_anchored = parameters.update is Update.PROXIMAL_SVRG
    for step in range(begun, plan.total):
        epoch, index = divmod(step, plan.steps)
        if is_anchored and not index:
            own = found.batch(np.arange(number, plan.questions, plan.workers))
            wire.ask(Request(Kind.ANCHOR, step, own.keys))
            whole, loss = own.gradient(wire.rows(SERVER, len(own.keys)))
            wire.ask(Request(Kind.WHOLE, step, own.keys, whole, loss))
        batch = found.batch(plan.of_epoch(epoch + 1)[index, number])
        wire.ask(Request(Kind.PULL, step, batch.keys))
        rows = wire.rows(SERVER, len(batch.keys))
        gradient, loss = batch.gradient(rows)
        if is_anchored:
            gradient -= batch.gradient(wire.rows(SERVER, len(batch.keys)))[0]
        keys = batch.keys
        if parameters.kkt_filter:
            # The worker does not know the gradient over all workers, so it uses its own as an estimate.
            mean = np.abs(gradient) * (plan.workers / parameters.batch_size)
            wanted = (rows != 0).any(1) | (mean > parameters.l1).any(1)
            keys, gradient = keys[wanted], gradient[wanted]
        wire.ask(Request(Kind.PUSH, step, keys, gradient, loss))
    wire.ask(Request(Kind.END, plan.total))


def _begun(peers: dist.ProcessGroup, steps: int = 0) -> int:
    """Return the number of steps that earlier attempts have taken.

    Only the server knows this number, and passes it as `steps`. This call sends it to the workers.
    """
    done = torch.tensor([steps])
    dist.broadcast(done, SERVER, peers)
    return int(done.item())


if __name__ == "__main__":
    process.main(train)
