"""The groups of the frameworks for `arrays.kept`: a group lets its processes exchange values.

A group needs only a function that sums arrays over its processes. So `arrays.kept` works with any framework
that averages gradients: pass the framework's function to `Summing`.
"""

import importlib
import pickle
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from trainer_kit.checkpoints.exchange import Alone, Exchange

T = TypeVar("T")
Integers = NDArray[np.int32]

_WORDS = 64
"""The minimum number of integers with which `all` sends a value. Larger numbers are powers of two, because
JAX compiles a program for each length."""


class Summing(Exchange):
    """An exchange through sums of arrays with a row for each process.

    Each process puts its values into its own row, and zeros into the other rows. `total` returns the exact
    sum of an array of 32-bit integers over all processes.
    """

    def __init__(self, rank: int, size: int, total: Callable[[Integers], Integers]) -> None:
        super().__init__(rank, size)
        self._total = total

    def highest(self, *values: float) -> list[float]:
        """Return the maximum of each value over the processes."""
        rows = self._rows(np.array(values, np.float64).view(np.int32))
        highest: list[float] = rows.view(np.float64).max(axis=0).tolist()
        return highest

    def all(self, value: T) -> list[T]:
        """Return the values of all processes by rank."""
        content = pickle.dumps(value)
        lengths = self._rows(np.array([len(content)], np.int32))[:, 0]
        room = max(_WORDS, 1 << int(lengths.max() - 1).bit_length() >> 2)
        own = np.zeros(4 * room, np.uint8)
        own[: len(content)] = np.frombuffer(content, np.uint8)
        rows = self._rows(own.view(np.int32)).view(np.uint8)
        # Unpickling may run any code. But the data comes directly from processes of this training, which may
        # run any code anyway, and not from storage.
        return [pickle.loads(row[:length].tobytes()) for row, length in zip(rows, lengths, strict=True)]  # noqa: S301

    def _rows(self, own: Integers) -> Integers:
        """Return the arrays of all processes as the rows of a matrix.

        All arrays must have the same length.
        """
        rows = np.zeros((self.size, len(own)), np.int32)
        rows[self.rank] = own
        return np.ascontiguousarray(self._total(rows), np.int32)


def alone() -> Exchange:
    """Return the group of one process, which trains alone, or saves without the help of others."""
    return Alone()


def mpi(world: Any) -> Exchange:
    """Return the group of a communicator of mpi4py, such as MPI.COMM_WORLD."""

    def total(values: Integers) -> Integers:
        sums = np.empty_like(values)
        world.Allreduce(values, sums)  # sums by default
        return sums

    return Summing(world.Get_rank(), world.Get_size(), total)


def horovod(framework: str = "torch") -> Exchange:
    """Return the group of Horovod for `framework`, "torch" or "tensorflow". Call this after hvd.init()."""
    hvd = importlib.import_module(f"horovod.{framework}")
    tensors = importlib.import_module(framework)
    tensor = tensors.from_numpy if framework == "torch" else tensors.constant

    def total(values: Integers) -> Integers:
        sums: Integers = hvd.allreduce(tensor(values), op=hvd.Sum).numpy()
        return sums

    return Summing(hvd.rank(), hvd.size(), total)


def jax() -> Exchange:
    """Return the group of all processes of JAX. Call this after jax.distributed.initialize()."""
    import jax
    from jax.experimental import multihost_utils

    def total(values: Integers) -> Integers:
        gathered = np.asarray(multihost_utils.process_allgather(values))
        sums: Integers = gathered.reshape(-1, *values.shape).sum(axis=0, dtype=np.int32)
        return sums

    return Summing(jax.process_index(), jax.process_count(), total)


def tensorflow(strategy: Any) -> Exchange:
    """Return the group of the workers of a tf.distribute.MultiWorkerMirroredStrategy."""
    import tensorflow as tf

    resolver = strategy.cluster_resolver
    size = max(1, resolver.cluster_spec().num_tasks("worker") if resolver.cluster_spec().jobs else 1)
    on_each = strategy.num_replicas_in_sync // size

    def total(values: Integers) -> Integers:
        def own(context: Any) -> Any:  # only the first device of each worker adds its values
            is_first = context.replica_id_in_sync_group % on_each == 0
            return tf.constant(values if is_first else np.zeros_like(values))

        each = strategy.experimental_distribute_values_from_function(own)
        sums: Integers = strategy.reduce("SUM", each, axis=None).numpy()
        return sums

    return Summing(resolver.task_id or 0, size, total)
