"""The leading server's decisions: the order of gradients, and whether training survives a lost rank."""

from collections import deque
from collections.abc import Iterable

from torch import Tensor
from trainer_kit.errors import GroupError

from language_model.parameter_server.messages import Kind, Message, Post
from language_model.parameter_server.roles import Roles
from language_model.parameter_server.synchrony import Rule

Order = tuple[int, int]
"""A gradient to put in order: its worker, and its number among the gradients of this worker."""


class History:
    """The gradients that a server has taken."""

    def __init__(self, workers: range) -> None:
        self.count = 0
        """The number of gradients that the server has taken."""
        self.last = dict.fromkeys(workers, 0)
        """The number of each worker's latest gradient."""
        self._recent: deque[Order] = deque(maxlen=len(workers))
        """The latest gradients: at most as many as there are workers.

        These are enough to inform another server: a server is behind by at most one gradient of each worker,
        because workers wait for all servers.
        """

    def note(self, order: Order) -> None:
        """Record that a gradient was taken."""
        worker, number = order
        self.count += 1
        self.last[worker] = number
        self._recent.append(order)

    def since(self, count: int) -> list[Order]:
        """Return the gradients that were taken after the first `count`, each as its worker and number."""
        missing = self.count - count
        assert 0 <= missing <= len(self._recent)
        return list(self._recent)[len(self._recent) - missing :]


class Leader:
    """Puts a gradient next in the order once all servers have it, and gathers the states of their shards."""

    def __init__(
        self, roles: Roles, history: History, rule: Rule, post: Post, servers: Iterable[int]
    ) -> None:
        self._roles = roles
        self._history = history
        self._rule = rule
        self._post = post
        self._servers = {roles.shard_of(server): server for server in servers}
        """The other servers by shard. If this leader has taken over, each server is added when it introduces
        itself."""
        self._ordered = dict(history.last)
        """The number of the last ordered gradient of each worker."""
        self._have: dict[Order, set[int]] = {}
        """For each gradient that is not ordered yet, the shards whose servers have it."""
        self._states: dict[int, Tensor] | None = None
        """The states of other shards, while they are gathered."""
        self.traffic: dict[int, tuple[int, int]] = {}
        """The bytes that the server of each shard had sent and received at its last message."""

    def has(self, shard: int, order: Order, traffic: tuple[int, int]) -> list[Order]:
        """Record that the server of a shard has a gradient.

        Return `[order]` if this was the last server to get the gradient. Return an empty list if a server
        still lacks it, or if it was ordered before.
        """
        self.traffic[shard] = traffic
        worker, number = order
        if number <= self._ordered[worker]:
            return []
        shards = self._have.setdefault(order, set())
        shards.add(shard)
        if len(shards) < self._roles.servers:
            return []
        del self._have[order]
        self._ordered[worker] = number
        return [order]

    def command(self, order: Order) -> None:
        """Let the other servers take a gradient."""
        for server in self._servers.values():
            self._post.send(server, Message(Kind.TAKE, order))

    def welcome(self, server: int, ordered: int) -> None:
        """Send a server the orders that it has missed: those after the first `ordered`.

        Call this when the server or the leader has just taken over. This forgets which gradients the server
        had, because the server announces them again. If states are being gathered, this also asks for the
        state of the server's shard.
        """
        shard = self._roles.shard_of(server)
        self._servers[shard] = server
        for shards in self._have.values():
            shards.discard(shard)
        for order in self._history.since(ordered):
            self._post.send(server, Message(Kind.TAKE, order))
        if self._states is not None and shard not in self._states:
            self._post.send(server, Message(Kind.ASK))

    def lose_server(self, server: int) -> None:
        """Stop sending orders to a lost server."""
        shard = self._roles.shard_of(server)
        if self._servers.get(shard) == server:
            del self._servers[shard]

    def lose_worker(self, worker: int, left: int) -> None:
        """Check that the `left` remaining workers suffice for an update. Raises GroupError if not."""
        needed = self._rule.speculates_after or (self._rule.gradients if self._rule.in_step else 1)
        if left < needed:
            raise GroupError(
                f"worker {worker} is gone or does not answer: an update needs {needed} workers, and the "
                f"number left is {left}"
            )

    def ask(self) -> None:
        """Ask the other servers for the states of their shards, after the gradients ordered so far."""
        self._states = {}
        for server in self._servers.values():
            self._post.send(server, Message(Kind.ASK))

    def learn(self, shard: int, state: Tensor, traffic: tuple[int, int]) -> None:
        """Record the state of another shard, and the traffic of its server."""
        self.traffic[shard] = traffic
        if self._states is not None:
            self._states[shard] = state

    def states(self) -> list[Tensor] | None:
        """Return the states of the other shards in their order, once all have come; None before that."""
        if self._states is None or len(self._states) < self._roles.servers - 1:
            return None
        states = [state for _, state in sorted(self._states.items())]
        self._states = None
        return states
