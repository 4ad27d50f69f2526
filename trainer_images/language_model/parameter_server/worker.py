"""A worker: the weights that it waits for, and its reaction to the loss of a server. Uses no network."""

from typing import NamedTuple

import torch
from torch import Tensor
from trainer_kit.errors import GroupError

from language_model.parameter_server import shards
from language_model.parameter_server.messages import Kind, Message, Post
from language_model.parameter_server.roles import Roles


class HandedOut(NamedTuple):
    """The weights for the next gradient of a worker."""

    version: int
    """The number of updates of the weights."""
    share: int
    """The number of the batch share that the worker is to compute; -1: the worker's own next share."""
    weights: Tensor


class Worker:
    """Sends gradients to all servers, and collects the weights of all shards."""

    def __init__(self, roles: Roles, post: Post) -> None:
        self._roles = roles
        self._post = post
        self._servers = list(range(roles.servers))
        """For each shard, the rank of its server, or of the standby once the server is lost."""
        self._lost: set[int] = set()
        self._number = 0
        """The number of the last gradient."""
        self._gradients: tuple[Tensor | None, ...] = (None,) * roles.servers
        """The last gradient by shard, each part with the loss. A part is sent again to a standby that may
        lack it."""
        self._weights: dict[int, Message] = {}
        """The weights that have come since the last gradient, by shard."""

    def push(self, gradient: Tensor, loss: float) -> None:
        """Send a gradient, computed from the last weights, and its loss."""
        self._number += 1
        self._weights.clear()
        end = gradient.new_tensor([loss])
        self._gradients = tuple(
            torch.cat([part, end]) for part in shards.split(gradient, self._roles.servers)
        )
        for shard in range(self._roles.servers):
            self._push(shard)

    def weights(self) -> HandedOut | None:
        """Return the weights for the next gradient, once all shards have come; None before that."""
        if len(self._weights) < self._roles.servers:
            return None
        parts = [message for _, message in sorted(self._weights.items())]
        # All servers take gradients in the same order, so the shards have the same version and share.
        [(version, share)] = {message.numbers[1:3] for message in parts}
        weights = torch.cat([message.tensor for message in parts if message.tensor is not None])
        return HandedOut(version, share, weights)

    def receive(self, sender: int, message: Message) -> None:
        """Handle a message. Raises GroupError if a server ends before the training does."""
        if message.kind is Kind.BYE:
            raise GroupError(f"rank {sender}, a parameter server, has ended before the training")
        if message.kind is Kind.WEIGHTS and message.numbers[0] == self._number:
            self._weights[self._roles.shard_of(sender)] = message

    def lose(self, peer: int) -> None:
        """Continue with the standby of a lost server. Raises GroupError if no standby is left."""
        self._lost.add(peer)
        self._roles.check_servers(self._lost)
        shard = self._roles.shard_of(peer)
        standby = self._roles.standby_of(shard)
        if peer == self._servers[shard] and standby is not None:
            self._servers[shard] = standby
            if shard not in self._weights:
                self._push(shard)

    def _push(self, shard: int) -> None:
        self._post.send(self._servers[shard], Message(Kind.GRADIENT, (self._number,), self._gradients[shard]))
