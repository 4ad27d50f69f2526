"""Parameter servers, standbys and workers without a network: a seed decides which message arrives next."""

import random
from collections import Counter, defaultdict, deque
from functools import partial

import torch
from language_model.parameter_server import flat, shards
from language_model.parameter_server.messages import Kind, Message
from language_model.parameter_server.replica import Replica
from language_model.parameter_server.roles import Roles
from language_model.parameter_server.server import ParameterServer, Taken
from language_model.parameter_server.shards import Shard
from language_model.parameter_server.synchrony import Rule
from language_model.parameter_server.worker import Worker
from torch import Tensor

from tests.support.trainers.parameter_server import RATE, batch_of, build, loss_on, optimizer_of


class RecordingServer(ParameterServer):
    """Records the order in which it takes gradients."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.order: list[int] = []

    def take(self, worker: int, gradient: Tensor, loss: float) -> Taken:
        self.order.append(worker)
        return super().take(worker, gradient, loss)


class Port:
    """Sends the messages of one process."""

    traffic = (0, 0)

    def __init__(self, network: "Network", rank: int) -> None:
        self._network = network
        self._rank = rank

    def send(self, peer: int, message: Message) -> None:
        self._network.put(self._rank, peer, message)


class Network:
    """All processes of a group."""

    def __init__(self, roles: Roles, rule: Rule, updates: int, seed: int) -> None:
        self._roles = roles
        self._updates = updates
        self._chance = random.Random(seed)
        self._links: defaultdict[tuple[int, int], deque[Message | None]] = defaultdict(deque)
        """Messages by sender and receiver; None reports the loss of the sender."""
        self.dead: set[int] = set()
        self.delivered = 0
        self.servers: dict[int, RecordingServer] = {}
        self.shards: dict[int, Shard] = {}
        self._replicas: dict[int, Replica] = {}
        self._counts: Counter[int] = Counter()
        """The gradients computed, by worker."""
        self._model = build()
        self._ended: set[int] = set()
        """The workers with the last weights."""
        parts = shards.split(flat.weights_of(self._model), roles.servers)
        for rank in roles.replicas:
            shard = self.shards[rank] = Shard(parts[roles.shard_of(rank)].clone())
            server = RecordingServer(shard, optimizer_of(shard), rule, lambda _: RATE)
            self.servers[rank] = server
            state = partial(flat.weights_of, shard)
            self._replicas[rank] = Replica(rank, roles, server, updates, state, Port(self, rank))
        self._workers = {rank: Worker(roles, Port(self, rank)) for rank in roles.workers}
        for replica in self._replicas.values():
            replica.start()

    def put(self, sender: int, receiver: int, message: Message | None) -> None:
        if receiver not in self.dead and (sender not in self.dead or message is None):
            self._links[sender, receiver].append(message)

    def kill(self, rank: int) -> None:
        """End the process of a rank. A random number of the last messages that it has sent are lost."""
        self.dead.add(rank)
        for other in {*self._roles.replicas, *self._roles.workers} - self.dead:
            on_way = self._links[rank, other]
            for _ in range(self._chance.randint(0, len(on_way))):
                on_way.pop()
            self._links[other, rank].clear()
            self.put(rank, other, None)

    def run(self, kill: dict[int, int] | None = None) -> Tensor:
        """Deliver messages until the leader has finished, and return the weights.

        The keys of `kill` are numbers of delivered messages, and its values the ranks that are killed at that
        moment. Raises GroupError.
        """
        while not (leader := self._leader()).has_finished:
            if (rank := (kill or {}).get(self.delivered)) is not None:
                self.kill(rank)
            self._deliver()
        assert leader.leader is not None
        leader.leader.ask()
        while (others := leader.leader.states()) is None:
            self._deliver()
        return torch.cat([flat.weights_of(self.shards[self._rank_of(leader)]), *others])

    def order(self) -> list[int]:
        """Return the order in which the leader has taken gradients.

        Check that each other server has taken gradients in the same order, perhaps fewer of them.
        """
        leader = self._rank_of(self._leader())
        order = self.servers[leader].order
        for rank in {*self._roles.replicas} - self.dead:
            assert self.servers[rank].order == order[: len(self.servers[rank].order)]
        return order

    def _leader(self) -> Replica:
        return next(
            replica
            for rank, replica in self._replicas.items()
            if rank not in self.dead and (replica.leader is not None or rank == self._roles.servers)
        )

    def _rank_of(self, replica: Replica) -> int:
        return next(rank for rank, other in self._replicas.items() if other is replica)

    def _deliver(self) -> None:
        self.delivered += 1
        busy = [link for link, messages in self._links.items() if messages and link[1] not in self.dead]
        assert busy, "all wait"
        sender, receiver = self._chance.choice(busy)
        message = self._links[sender, receiver].popleft()
        if receiver in self._ended:
            return
        of = self._replicas.get(receiver) or self._workers[receiver]
        if message is None:
            of.lose(sender)
        else:
            of.receive(sender, message)
        if isinstance(of, Replica):
            while of.advance():
                pass
        else:
            self._work(receiver)

    def _work(self, rank: int) -> None:
        worker = self._workers[rank]
        if (handed_out := worker.weights()) is None:
            return
        version, share, weights = handed_out
        if version >= self._updates:
            for replica in self._roles.replicas:
                self.put(rank, replica, Message(Kind.BYE))
            self._ended.add(rank)
            return
        model = self._model
        flat.set_weights(model, weights)
        model.zero_grad()
        own = rank - self._roles.workers.start, self._counts[rank]
        number, count = own if share < 0 else (share, version)
        loss = loss_on(model, batch_of(number + 1, count))
        torch.autograd.backward(loss)
        self._counts[rank] += 1
        worker.push(flat.gradient_of(model), loss.item())
