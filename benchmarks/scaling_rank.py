"""A rank in an emulated machine, for `scaling`. It reads orders from its standard input: each is a JSON
object on one line, and names a task to run.

    python -m benchmarks.scaling_rank CPU
    {"task": "train", "environment": {…}, "settings": {…}}      answered with {"seconds": …} or {"error": …}

Each order runs in a fork of this process, so that PyTorch is imported once and a failure ends only one order.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

import torch
from language_model.assembly import assemble
from language_model.data import Batch
from language_model.layout import VOCABULARY, Layout
from network_check.measure import measure
from torch import nn
from torch.nn.functional import cross_entropy
from trainer_kit.group import Group, join

WARM_UP, FEWEST, MOST = 2, 3, 60  # steps
TERMS, CLASSES = 16_384, 16
"""The approximate numbers of terms and classes in the dataset of questions."""

Step = Callable[[int], float]


def main() -> None:
    """Serve orders until standard input ends. The next order, or the end of input, ends the task `occupy`."""
    # All threads run on one processor. On several, they would use up the short quota early in each period,
    # and all would then wait for the next period.
    os.sched_setaffinity(0, {int(sys.argv[1])})
    torch.set_num_threads(1)  # two threads would spin while they wait, which is ten times slower
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of training code goes to standard error, not among the answers
    running = 0
    for line in sys.stdin:
        if running:
            os.kill(running, 9)
            os.waitpid(running, 0)
            running = 0
        order = json.loads(line)
        child = os.fork()
        if not child:
            _serve(order, answers)
        if order["task"] == "occupy":
            running = child
        else:
            os.waitpid(child, 0)
    if running:
        os.kill(running, 9)


def _serve(order: dict[str, Any], answers: TextIO) -> None:
    """Execute an order, print the answer, and end this process."""
    os.environ.update(order["environment"])
    try:
        answer = TASKS[order["task"]](order["settings"])
    except BaseException as error:  # the benchmark shows it
        answer = {"error": f"{type(error).__name__}: {error}"[:500]}
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
    os._exit(0)


def train(settings: dict[str, Any]) -> dict[str, Any]:
    """Train for about `settings["seconds"]`.

    Return the median seconds of this rank's steps, the bytes of the model's parameters, and the number of
    measured steps.
    """
    with join() as group:
        model, step = MODELS[settings["model"]](settings, group)
        began = time.perf_counter()
        for number in range(1, WARM_UP + 1):
            group.total(step(number))
        [together] = group.total(time.perf_counter() - began)
        usual = together / group.size / WARM_UP
        count = max(FEWEST, min(MOST, round(settings["seconds"] / usual)))
        times = []
        for number in range(WARM_UP + 1, WARM_UP + 1 + count):
            began = time.perf_counter()
            group.total(step(number))  # training code does the same to report the group's loss
            times.append(time.perf_counter() - began)
        size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    return {"seconds": statistics.median(times), "bytes": size, "steps": count}


def check_network(settings: dict[str, Any]) -> dict[str, Any]:
    """Run network-check, which writes its result to MODEL_URI. Return the settings."""
    with join() as group:
        measure(group)
    return settings


def occupy(_: dict[str, Any]) -> dict[str, Any]:
    """Keep this machine's share of the processor busy, as a rank would. Never returns."""
    matrix = torch.ones(256, 256)
    while True:
        torch.mm(matrix, matrix)


def _language(_: dict[str, Any], group: Group) -> tuple[nn.Module, Step]:
    layout = Layout.from_environment()
    learner = assemble(layout, group)
    chance = torch.Generator().manual_seed(layout.seed)
    tokens = torch.randint(VOCABULARY, (layout.batch_size, layout.context + 1), generator=chance)
    batch = Batch(tokens[:, :-1], tokens[:, 1:])
    return learner.model, lambda number: learner.learn(batch, layout.lr, number)


def _questions(settings: dict[str, Any], group: Group) -> tuple[nn.Module, Step]:
    """Return the classifier of `pytorch_questions`, and a function that trains it for one step on random
    examples with sparse features.
    """
    chance = torch.Generator().manual_seed(group.rank)
    examples = settings["batch"] // group.size
    features = torch.rand(examples, TERMS, generator=chance) < 0.001
    classes = torch.randint(CLASSES, (examples,), generator=chance)
    model = nn.Linear(TERMS, CLASSES)
    grouped = group.wrap(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

    def step(_: int) -> float:
        optimizer.zero_grad()
        loss = cross_entropy(grouped(features.float()), classes)
        torch.autograd.backward(loss)
        optimizer.step()
        return loss.item()

    return model, step


MODELS: dict[str, Callable[[dict[str, Any], Group], tuple[nn.Module, Step]]] = {
    "language": _language,
    "questions": _questions,
}
TASKS = {"train": train, "network": check_network, "occupy": occupy}


if __name__ == "__main__":
    main()
