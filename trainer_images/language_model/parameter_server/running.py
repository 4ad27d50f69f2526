"""The loops of a parameter server and its workers."""

from collections.abc import Callable, Iterator

from torch import nn

from language_model.parameter_server import flat
from language_model.parameter_server.server import ParameterServer, Update
from language_model.parameter_server.transport import ServerTransport, WorkerTransport


def serve(server: ParameterServer, transport: ServerTransport, updates: int) -> Iterator[Update]:
    """Serve all workers until the weights have been updated `updates` times, and yield each update.

    The weights do not change between two updates, so the caller may save a checkpoint there. Raises
    GroupError if a worker is lost.
    """
    ready: tuple[int, ...] = tuple(transport.workers)
    while server.version < updates:
        for worker in ready:
            transport.send(worker, server.version, server.hand_out(worker))
        update, ready = server.take(*transport.next())
        if update:
            yield update
    for worker in ready:
        transport.end(worker)
    while transport.computing:
        transport.end(transport.next().worker)


def work(model: nn.Module, learn: Callable[[int], float], transport: WorkerTransport) -> int:
    """Compute gradients of `model` until the server needs no more, and return their number.

    `learn` takes the number of updates of the weights, computes the gradients of this worker's next batch in
    the model, and returns the loss. Raises GroupError if the server is lost.
    """
    count = 0
    while (handed_out := transport.weights()) is not None:
        version, weights = handed_out
        flat.set_weights(model, weights)
        loss = learn(version)
        transport.send(flat.gradient_of(model), loss)
        count += 1
    return count
