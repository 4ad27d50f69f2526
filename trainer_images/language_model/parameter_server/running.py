"""The two programs of a training with a parameter server."""

from collections.abc import Callable, Iterator

from torch import nn

from language_model.parameter_server import flat
from language_model.parameter_server.post import ServersPost, WorkersPost
from language_model.parameter_server.server import ParameterServer, Update


def serve(server: ParameterServer, post: ServersPost, updates: int) -> Iterator[Update]:
    """Serves all workers until the weights have been changed `updates` times, and gives each change.

    What it is asked for between two of them, such as a checkpoint, finds weights that nobody changes.
    Raises GroupError when a worker is lost.
    """
    ready: tuple[int, ...] = tuple(post.workers)
    while server.version < updates:
        for worker in ready:
            post.send(worker, server.version, server.hand_out(worker))
        update, ready = server.take(*post.next())
        if update:
            yield update
    for worker in ready:
        post.end(worker)
    while post.computing:
        post.end(post.next().worker)


def work(model: nn.Module, learn: Callable[[int], float], post: WorkersPost) -> int:
    """Computes gradients of `model` as long as the server wants them; gives how many that were.

    `learn`, told how many updates the weights have had, leaves in the model the gradients of this worker's
    next batch, and gives its loss. Raises GroupError when the server is lost.
    """
    count = 0
    while (handed_out := post.weights()) is not None:
        version, weights = handed_out
        flat.set_weights(model, weights)
        loss = learn(version)
        post.send(flat.gradient_of(model), loss)
        count += 1
    return count
