"""The two programs of a training with a parameter server."""

from collections.abc import Callable, Iterator

from torch import nn

from language_model.parameter_server import flat
from language_model.parameter_server.server import ParameterServer, Update
from language_model.parameter_server.transport import ServerTransport, WorkerTransport


def serve(server: ParameterServer, transport: ServerTransport, updates: int) -> Iterator[Update]:
    """Serve all workers until the weights have been updated `updates` times; yield each update.

    The weights do not change between two updates, so the caller may save a checkpoint there.
    Raises GroupError when a worker is lost.
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
    """Compute gradients of `model` as long as the server wants them; return their number.

    `learn` takes the number of updates that the weights have had, leaves in the model the gradients of this
    worker's next batch, and returns its loss. Raises GroupError when the server is lost.
    """
    count = 0
    while (handed_out := transport.weights()) is not None:
        version, weights = handed_out
        flat.set_weights(model, weights)
        loss = learn(version)
        transport.send(flat.gradient_of(model), loss)
        count += 1
    return count
