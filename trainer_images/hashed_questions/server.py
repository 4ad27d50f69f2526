"""The server: it answers requests of the workers, and applies a step's gradients once all have come.

Bounded delay (Li et al., OSDI 2014): a pull for step t waits until steps 0 to t - `max_delay` - 1 have been
applied. With a `max_delay` of 0, all workers wait for each other.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import torch.distributed as dist
from trainer_kit import background

from hashed_questions.updates import Push, Weights
from hashed_questions.wire import Kind, Request, Wire


class Server:
    """Serves all workers of a group, each in a thread of its own. Steps count from 0."""

    def __init__(
        self,
        weights: Weights,
        *,
        max_delay: int,
        applied: int,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        """`applied` is the number of steps that earlier attempts have applied."""
        self._weights = weights
        self._max_delay = max_delay
        self._applied = applied
        self._until = 0
        """The first step that is not served yet."""
        self._anchored = -1
        """The number of applied steps at the last call of `whole`; -1 before the first call."""
        self._pushes: dict[int, dict[int, Push]] = {}
        """The pushes of each step, by the worker's number. Pushes for `whole` have the step -1."""
        self._read: dict[tuple[int, int], Push] = {}
        """The weights that each worker got for a step, if the update rule needs them. They are kept until the
        worker's push for that step comes."""
        self._changed = threading.Condition()
        self._failed: BaseException | None = None
        self._workers = range(1, dist.get_world_size(group))
        self._wires = [Wire(weights.values.shape[1], group) for _ in self._workers]
        self._serving: list[Future[None]] = []

    def start(self, until: int) -> None:
        """Begin to serve the steps with numbers below `until`."""
        self._until = until
        for worker, wire in zip(self._workers, self._wires, strict=True):
            serving = background.start(lambda worker=worker, wire=wire: self._serve(worker, wire))  # type: ignore[misc]
            serving.add_done_callback(self._ended)
            self._serving.append(serving)

    def costs(self) -> dict[str, float]:
        """Return the numbers of bytes and messages that workers have exchanged with this server."""
        return {
            "exchanged_bytes": float(sum(wire.bytes for wire in self._wires)),
            "exchanged_messages": float(sum(wire.messages for wire in self._wires)),
        }

    def whole(self, examples: int, until: int) -> float:
        """Collect the gradient of all examples at the current weights, and return the sum of all losses.

        Every worker now sends its part of the gradient. Afterwards, steps below `until` are served. Raises
        GroupError if a worker is lost.
        """
        with self._changed:
            self._weights.begin_epoch()
            self._anchored = self._applied
            self._changed.notify_all()
            pushes = self._await(-1)
            self._weights.set_whole(pushes, examples)
            self._until = until
            self._changed.notify_all()
            return sum(push.loss for push in pushes)

    def steps(self, last: int, examples: int) -> Iterator[tuple[int, float]]:
        """Apply each step below `last` once its pushes have come. Each step has `examples` examples.

        Yields the number of applied steps after each step, and the sum of the step's losses. While the caller
        handles a yielded step, the weights do not change, but workers can get them. Raises GroupError if a
        worker is lost.
        """
        while self._applied < last:
            with self._changed:
                pushes = self._await(self._applied)
                self._weights.apply(pushes, examples)
                self._applied += 1
                self._changed.notify_all()
            yield self._applied, sum(push.loss for push in pushes)

    def end(self) -> None:
        """Wait until all workers have ended."""
        for serving in self._serving:
            serving.result()

    def _await(self, step: int) -> list[Push]:
        """Wait for the pushes of all workers for a step, and return them in the order of workers."""
        self._changed.wait_for(lambda: self._failed or len(self._pushes.get(step, ())) == len(self._workers))
        if self._failed:
            raise self._failed
        return [push for _, push in sorted(self._pushes.pop(step).items())]

    def _serve(self, worker: int, wire: Wire) -> None:
        while (request := wire.asked(worker)).kind is not Kind.END:
            match request.kind:
                case Kind.PULL:
                    self._answer(worker, wire, request)
                case Kind.ANCHOR:
                    with self._changed:
                        self._wait_until(lambda request=request: self._anchored == request.step)  # type: ignore[misc]
                        rows = self._weights.rows(request.keys)
                    wire.answer(worker, rows)
                case _:
                    self._take(worker, request)

    def _answer(self, worker: int, wire: Wire, request: Request) -> None:
        step = request.step
        with self._changed:
            self._wait_until(lambda: self._applied >= step - self._max_delay and step < self._until)
            rows = self._weights.rows(request.keys)
            anchors = self._weights.rows(request.keys, anchored=True) if self._weights.has_anchor else None
            if self._weights.needs_read:
                self._read[worker, step] = Push(request.keys, rows, 0.0)
        wire.answer(worker, rows)
        if anchors is not None:
            wire.answer(worker, anchors)

    def _take(self, worker: int, request: Request) -> None:
        assert request.rows is not None
        step = request.step if request.kind is Kind.PUSH else -1
        with self._changed:
            read = self._read.pop((worker, step), None)
            # The worker may push fewer keys than it has read. Keys are sorted, so the pushed keys can be
            # found in `read`.
            rows = None if read is None else read.rows[read.keys.searchsorted(request.keys)]
            self._pushes.setdefault(step, {})[worker] = Push(request.keys, request.rows, request.loss, rows)
            self._changed.notify_all()

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        self._changed.wait_for(lambda: self._failed or condition())
        if self._failed:
            raise self._failed

    def _ended(self, serving: Future[None]) -> None:
        if (error := serving.exception()) is not None:
            with self._changed:
                self._failed = self._failed or error
                self._changed.notify_all()
