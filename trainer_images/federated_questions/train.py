"""Federated averaging (McMahan et al., AISTATS 2017): data stays with its client, and weights are sent.

All ranks are clients, and rank 0 is the server, too. In each round, the server sends the weights to a sample
of the clients. Each of these clients learns from its own file, and sends its weights back. The new weights
are the mean of the weights that come back, weighted by the clients' numbers of examples.
"""

import logging
import os
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from question_features import TERMS, labels, load
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from trainer_kit import checkpoints, meeting, process
from trainer_kit.artifacts import publishing
from trainer_kit.group import Group
from trainer_kit.job import Job
from trainer_kit.progress import reporting

ROUNDS, SHARE = int(os.environ.get("ROUNDS", "20")), float(os.environ.get("CLIENT_SHARE", "1"))
LOCAL_EPOCHS, BATCH_SIZE = int(os.environ.get("LOCAL_EPOCHS", "1")), int(os.environ.get("BATCH_SIZE", "32"))
LR, SEED = float(os.environ.get("LR", "3")), int(os.environ.get("SEED", "1"))
SERVER = 0


def train(group: Group) -> None:
    """Train in this process."""
    job = Job.from_environment()
    data = read(job.data_uri, "train", f"client-{group.rank}.csv")
    test = read(job.data_uri, "test", "examples.csv")
    model = nn.Linear(TERMS, len(labels(job.data_uri)))
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    # Weights are in host memory, which NCCL does not send.
    patience = timedelta(seconds=meeting.patience())
    on_host = group.device.type == "cuda" and group.size > 1
    wire = dist.new_group(backend="gloo", timeout=patience) if on_host else None
    with reporting(group) as reporter:
        if group.rank != SERVER:
            serve_rounds(group, wire, model, data)
            return
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        sent = 0
        with checkpoints.kept(Group(0, 1, group.device), model, optimizer) as run:  # clients keep no state
            if group.size > 1:
                dist.broadcast(torch.tensor([run.steps]), SERVER, wire)
            for number in range(run.steps + 1, ROUNDS + 1):
                chosen = sample(number, group.size)
                mean, loss = one_round(wire, model, data, number, chosen)
                vector_to_parameters(mean, model.parameters())
                sent += 2 * mean.nbytes * len(chosen - {SERVER})
                run.step()
                accuracy = accuracy_on(test, model)
                reporter.report(
                    step=run.steps, total_steps=ROUNDS, loss=loss, test_accuracy=accuracy, sent_bytes=sent
                )
    accuracy = accuracy_on(test, model)
    logging.info(
        "test accuracy %.3f on %d questions; this attempt sent %d bytes of weights",
        accuracy,
        len(test[1]),
        sent,
    )
    with publishing(job.model_uri, {"job_id": job.job_id, "test_accuracy": accuracy}) as folder:
        torch.save(model.state_dict(), folder / "model.pt")


def one_round(
    wire: dist.ProcessGroup | None,
    model: nn.Module,
    data: tuple[Tensor, Tensor],
    number: int,
    chosen: set[int],
) -> tuple[Tensor, float]:
    """As the server, let the chosen clients learn in the round `number`.

    Return the mean of their weights, and the mean of their losses. Both means are weighted by the clients'
    numbers of examples.
    """
    weights = parameters_to_vector(model.parameters()).detach()
    clients = sorted(chosen - {SERVER})
    for client in clients:
        dist.send(weights, client, wire)
    answers = [learned(model, data, number, SERVER)] if SERVER in chosen else []
    for client in clients:
        answer = torch.empty(len(weights) + 2)
        dist.recv(answer, client, wire)
        answers.append(answer)
    counts = torch.tensor([answer[-1].item() for answer in answers], dtype=torch.float64)
    share = counts / counts.sum()
    together = sum(part.double() * answer for part, answer in zip(share, answers, strict=True))
    assert isinstance(together, Tensor)
    return together[:-2].float(), float(together[-2])


def serve_rounds(
    group: Group, wire: dist.ProcessGroup | None, model: nn.Module, data: tuple[Tensor, Tensor]
) -> None:
    """Learn as a client in each round for which this rank is chosen."""
    done = torch.tensor([0])
    dist.broadcast(done, SERVER, wire)
    weights = parameters_to_vector(model.parameters()).detach()
    for number in range(int(done.item()) + 1, ROUNDS + 1):
        if group.rank in sample(number, group.size):
            dist.recv(weights, SERVER, wire)
            vector_to_parameters(weights, model.parameters())
            dist.send(learned(model, data, number, group.rank), SERVER, wire)


def learned(model: nn.Module, data: tuple[Tensor, Tensor], number: int, client: int) -> Tensor:
    """Train `model` on the client's own data in the round `number`.

    Return one vector: the new weights, the mean loss, and the number of examples.
    """
    x, y = data
    order = torch.Generator().manual_seed(int(np.random.default_rng([SEED, number, client]).integers(2**63)))
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    losses = []
    for _ in range(LOCAL_EPOCHS):
        shuffled = torch.randperm(len(y), generator=order)
        for batch in torch.split(shuffled, BATCH_SIZE or len(y)):
            optimizer.zero_grad()
            loss = cross_entropy(model(x[batch].float()), y[batch])
            torch.autograd.backward(loss)
            optimizer.step()
            losses.append(loss.item() * len(batch))
    mean = sum(losses) / (LOCAL_EPOCHS * len(y))
    weights = parameters_to_vector(model.parameters()).detach()
    return torch.cat([weights, torch.tensor([mean, float(len(y))])])


def sample(number: int, clients: int) -> set[int]:
    """Return the clients that learn in the round `number`. The result is the same in all ranks."""
    count = max(1, round(SHARE * clients))
    return set(np.random.default_rng([SEED, number]).choice(clients, count, replace=False).tolist())


def accuracy_on(data: tuple[Tensor, Tensor], model: nn.Module) -> float:
    """Return the accuracy: the share of the questions whose own class has the largest score."""
    x, y = data
    with torch.no_grad():
        return float((model(x.float()).argmax(dim=1) == y).float().mean())


def read(uri: str, split: str, name: str) -> tuple[Tensor, Tensor]:
    """Load the features and classes of a split of a file."""
    features, classes = load(uri, split, name)
    return torch.from_numpy(features), torch.from_numpy(classes).long()


if __name__ == "__main__":
    process.main(train)
