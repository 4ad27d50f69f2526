"""Trains the language model with parameter servers. Some ranks end by SIGKILL.

DEATHS has these ranks, each with the version of the weights at which it dies, such as `{"0": 5}`: a server or
a standby as soon as it takes a gradient, a worker as soon as it has computed one. A worker that is so slow
that the others complete the training dies when it gets the last weights.
"""

import json
import os
import runpy
import signal

from language_model.parameter_server.server import ParameterServer, Taken
from language_model.parameter_server.worker import HandedOut, Worker
from torch import Tensor

DIES_AT: int | None = json.loads(os.environ.get("DEATHS", "{}")).get(os.environ["RANK"])
LAST = int(os.environ["STEPS"])

take, weights, push = ParameterServer.take, Worker.weights, Worker.push
versions: list[int] = []


def die_if_due(version: int) -> None:
    if DIES_AT is not None and version >= DIES_AT:
        os.kill(os.getpid(), signal.SIGKILL)


def take_or_die(server: ParameterServer, worker: int, gradient: Tensor, loss: float) -> Taken:
    die_if_due(server.version)
    return take(server, worker, gradient, loss)


def weights_and_note(worker: Worker) -> HandedOut | None:
    handed_out = weights(worker)
    if handed_out:
        versions.append(handed_out.version)
        if handed_out.version >= LAST:
            die_if_due(handed_out.version)
    return handed_out


def push_or_die(worker: Worker, gradient: Tensor, loss: float) -> None:
    die_if_due(versions[-1])
    push(worker, gradient, loss)


ParameterServer.take = take_or_die  # type: ignore[assignment, method-assign]
Worker.weights = weights_and_note  # type: ignore[assignment, method-assign]
Worker.push = push_or_die  # type: ignore[assignment, method-assign]
runpy.run_module("language_model.train", run_name="__main__", alter_sys=True)
