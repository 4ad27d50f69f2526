"""A server or a standby of one shard: its reaction to each message. Uses no network.

All servers take the same gradients in the same order, so their shards together equal the weights of a single
server. When all servers have a gradient, the leader tells them to take it. A server first sends a copy to
its standby, and takes the gradient once the standby has taken it. So workers never see an update that the
standby lacks. Results depend only on the order of gradients, so a standby that takes over continues as the
server would have.

M. Li et al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014: each server has a
range of the weights, and answers a worker only after the standby has the copy.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor
from trainer_kit.errors import GroupError

from language_model.parameter_server.leader import History, Leader, Order
from language_model.parameter_server.messages import Kind, Message, Post
from language_model.parameter_server.roles import Roles
from language_model.parameter_server.server import ParameterServer, Update


class Gradient(NamedTuple):
    """A worker's gradient of the shard, with the loss as its last element."""

    order: Order
    tensor: Tensor


class Replica:
    """One process that holds a shard.

    `start` comes first. Then `receive` and `lose` handle events, and `advance` takes gradients.
    """

    def __init__(
        self,
        rank: int,
        roles: Roles,
        server: ParameterServer,
        updates: int,
        state: Callable[[], Tensor],
        post: Post,
    ) -> None:
        self._rank = rank
        self._roles = roles
        self._server = server
        self._updates = updates
        """The version of the weights at which training ends."""
        self._state = state
        """Returns the state of the shard."""
        self._post = post
        self.shard = roles.shard_of(rank)
        standby = roles.standby_of(self.shard)
        self._standby = None if standby == rank else standby
        """The rank of the standby; None if it is lost, or if this process has none."""
        self._serves = rank < roles.servers
        """Whether this process answers workers: it is a server, or has taken over from one."""
        self._lost: set[int] = set()
        self._finished: set[int] = set()
        """The peers that have sent BYE."""
        self._early: list[tuple[int, Message]] = []
        """Messages to a standby that has not taken over yet: senders may notice the loss of the server before
        the standby does."""
        self._arrived: dict[int, Gradient] = {}
        """The gradients that have arrived and are not in `_copied` yet, by worker."""
        self._orders: deque[Order | None] = deque()
        """The ordered gradients that are not in `_copied` yet. None is the leader's request for the state."""
        self._copied: deque[Gradient] = deque()
        """The gradients to take next. If there is a standby, copies were sent to it. This process then takes
        a gradient only after the standby has taken the copy."""
        self._confirmed = 0
        """The number of gradients in `_copied` that the standby has taken."""
        self._history = History(roles.workers)
        self._answers: dict[int, Message] = {}
        """The latest weights for each worker, kept by a standby. After the standby has taken over, it sends
        these weights to a worker that repeats its gradient."""
        self.updates: deque[Update] = deque()
        """The latest updates, which the caller removes."""
        self.leader: Leader | None = None
        """The decisions for all servers, if this server leads."""
        if rank == 0:
            self.leader = Leader(roles, self._history, server.rule, post, range(1, roles.servers))

    def start(self) -> None:
        """Hand out the first weights to all workers. A standby only keeps them."""
        for worker in self._roles.workers:
            self._answer(worker, 0)

    @property
    def has_ended(self) -> bool:
        """Whether the shard has had its last update."""
        return self._server.version >= self._updates

    @property
    def has_finished(self) -> bool:
        """Whether no peer needs this process any more.

        The leader waits for BYE of all workers that are left. Other processes wait for BYE of the leader; for
        a standby, BYE of its server is enough, too.
        """
        if self.leader is not None:
            return self.has_ended and {*self._roles.workers} <= self._lost | self._finished
        return self.leading in self._finished or (self.shard in self._finished and not self._serves)

    @property
    def gradients(self) -> int:
        """The number of gradients taken."""
        return self._history.count

    @property
    def leading(self) -> int:
        """The rank of the leader: rank 0, or its standby if rank 0 is lost."""
        return self._roles.servers if 0 in self._lost else 0

    def receive(self, sender: int, message: Message) -> None:
        """Handle a message of the process `sender`."""
        kind, numbers, tensor = message
        if kind is Kind.BYE:
            self._finished.add(sender)
        elif kind is Kind.COPY:
            assert tensor is not None
            self._take(Gradient((numbers[0], numbers[1]), tensor))
            self._post.send(sender, Message(Kind.COPIED))
        elif not self._serves:
            self._early.append((sender, message))
        elif kind is Kind.GRADIENT:
            self._receive_gradient((sender, numbers[0]), tensor)
        elif kind is Kind.COPIED:
            self._confirmed += 1
        elif kind is Kind.TAKE:
            self._orders.append((numbers[0], numbers[1]))
        elif kind is Kind.ASK:
            self._orders.append(None)
        elif self.leader is not None:
            shard = self._roles.shard_of(sender)
            if kind is Kind.HAVE:
                worker, number, sent, received = numbers
                self._orders += self.leader.has(shard, (worker, number), (sent, received))
            elif kind is Kind.HERE:
                self.leader.welcome(sender, numbers[0])
            elif kind is Kind.STATE:
                assert tensor is not None
                self.leader.learn(shard, tensor, (numbers[0], numbers[1]))

    def lose(self, peer: int) -> None:
        """Handle the loss of a process. Raises GroupError if the training cannot continue without it."""
        if peer in self._lost | self._finished:
            return
        had_leader = self.leading
        self._lost.add(peer)
        self._roles.check_servers(self._lost)
        if peer == self._standby:
            self._standby = None
        if peer == self.shard:
            self._take_over()
        elif self.leading != had_leader and self._serves:
            self._introduce()
        if self.leader is not None:
            self._bear(peer)

    def advance(self) -> bool:
        """Take the next gradient if it is ready. Return whether one was taken."""
        self._copy()
        if not self._copied or (self._standby is not None and not self._confirmed):
            return False
        self._confirmed -= self._standby is not None
        gradient = self._copied.popleft()
        if self.leader is not None:
            self.leader.command(gradient.order)
        self._take(gradient)
        return True

    def _copy(self) -> None:
        """Move arrived gradients into `_copied` in the leader's order, and send copies to the standby, if
        there is one.

        A request for the state is answered once the gradients before it have been taken. Raises GroupError if
        an ordered gradient is lost.
        """
        while self._orders:
            order = self._orders[0]
            if order is None:
                if self._copied:
                    return
                state = Message(Kind.STATE, self._post.traffic, self._state().flatten())
                self._post.send(self.leading, state)
            elif not self.has_ended:  # otherwise, the worker already has its answer
                worker, _ = order
                gradient = self._arrived.get(worker)
                if gradient is None or gradient.order != order:
                    if worker in self._lost:
                        raise GroupError(
                            f"worker {worker} is gone, and so is the only server that had its gradient"
                        )
                    return
                del self._arrived[worker]
                self._copied.append(gradient)
                if self._standby is not None:
                    self._post.send(self._standby, Message(Kind.COPY, order, gradient.tensor))
            self._orders.popleft()

    def _receive_gradient(self, order: Order, tensor: Tensor | None) -> None:
        worker, number = order
        if number <= self._history.last[worker]:
            # Sent again: the former server of this shard is gone, and the worker repeats its gradient.
            answer = self._answers.get(worker)
            if answer is not None and answer.numbers[0] == number:
                self._post.send(worker, answer)
        elif self.has_ended:
            self._answer(worker, number)
        else:
            assert tensor is not None
            self._arrived[worker] = Gradient(order, tensor)
            self._announce(order)

    def _announce(self, order: Order) -> None:
        traffic = self._post.traffic
        if self.leader is not None:
            self._orders += self.leader.has(self.shard, order, traffic)
        else:
            self._post.send(self.leading, Message(Kind.HAVE, (*order, *traffic)))

    def _take(self, gradient: Gradient) -> None:
        (worker, _), tensor = gradient
        self._history.note(gradient.order)
        ready: tuple[int, ...] = (worker,)
        if not self.has_ended:
            update, ready = self._server.take(worker, tensor[:-1], tensor[-1].item())
            self.updates += [update] if update else []
        for waiting in ready:
            self._answer(waiting, self._history.last[waiting])
        if self.has_ended:
            for (late, number), _ in self._arrived.values():
                self._answer(late, number)
            self._arrived.clear()

    def _answer(self, worker: int, number: int) -> None:
        weights = self._server.hand_out(worker)
        numbers = (number, self._server.version, self._server.share_of(worker))
        message = Message(Kind.WEIGHTS, numbers, weights)
        if self._serves:
            self._post.send(worker, message)
        else:
            self._answers[worker] = message

    def _take_over(self) -> None:
        self._serves = True
        if self.leading == self._rank:
            self.leader = Leader(self._roles, self._history, self._server.rule, self._post, ())
            for peer in self._lost:
                self._bear(peer)
        else:
            self._introduce()
        early, self._early = self._early, []
        for sender, message in early:
            self.receive(sender, message)

    def _introduce(self) -> None:
        """Introduce this server to the leader, after one of the two has taken over."""
        self._orders = deque(order for order in self._orders if order is not None)
        ordered = self._history.count + len(self._copied) + len(self._orders)
        self._post.send(self.leading, Message(Kind.HERE, (ordered,)))
        for gradient in self._arrived.values():
            self._announce(gradient.order)

    def _bear(self, peer: int) -> None:
        assert self.leader is not None
        if peer not in self._roles.workers:
            self.leader.lose_server(peer)
        elif not self.has_ended:
            self.leader.lose_worker(peer, len({*self._roles.workers} - self._lost))
