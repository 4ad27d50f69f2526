"""The loops of servers, standbys and workers."""

from collections.abc import Callable, Iterator

from torch import Tensor, nn

from language_model.parameter_server import flat
from language_model.parameter_server.replica import Replica
from language_model.parameter_server.server import Update
from language_model.parameter_server.transport import Mailbox
from language_model.parameter_server.worker import Worker


def serve(replica: Replica, mailbox: Mailbox) -> Iterator[Update]:
    """Serve, or stand by, until no process needs this one. Yield each update.

    While the caller handles an update, the weights do not change. So the leader may then save a checkpoint,
    with `gather`. Raises GroupError if a process that is needed is lost.
    """
    replica.start()
    while not replica.has_finished:
        while replica.advance() or replica.updates:
            if replica.updates:
                yield replica.updates.popleft()
        if not replica.has_finished:
            _handle(replica, mailbox)
    yield from replica.updates


def gather(replica: Replica, mailbox: Mailbox) -> list[Tensor]:
    """Ask the other servers for the states of their shards, and return the states in the order of the shards.

    This process must lead.
    """
    assert replica.leader is not None
    replica.leader.ask()
    while (states := replica.leader.states()) is None:
        _handle(replica, mailbox)
    return states


def work(
    model: nn.Module, learn: Callable[[int, int], float], worker: Worker, mailbox: Mailbox, updates: int
) -> int:
    """Compute gradients of `model` until the weights have had all `updates`. Return the number of gradients.

    `learn` takes the number of updates of the weights, and a share of the batch or -1 for this worker's own
    next share. It computes the gradients of that share in the model, and returns the loss. At the end, the
    model has the last weights. Raises GroupError if a server is lost and has no standby left.
    """
    count = 0
    while True:
        while (handed_out := worker.weights()) is None:
            _handle(worker, mailbox)
        version, share, weights = handed_out
        flat.set_weights(model, weights)
        if version >= updates:
            return count
        loss = learn(version, share)
        worker.push(flat.gradient_of(model), loss)
        count += 1


def _handle(of: Replica | Worker, mailbox: Mailbox) -> None:
    peer, message = mailbox.next()
    if message is None:
        of.lose(peer)
    else:
        of.receive(peer, message)
