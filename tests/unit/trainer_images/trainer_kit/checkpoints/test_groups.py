"""Processes agree through nothing but sums of integers."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from trainer_kit.checkpoints import groups
from trainer_kit.checkpoints.exchange import Exchange
from trainer_kit.checkpoints.groups import Integers, Summing
from trainer_kit.errors import StorageError

from tests.support.patience import PATIENCE


def in_group(size: int, action: Callable[[Exchange], Any]) -> list[Any]:
    """Return the results of the action in threads that stand for the processes of a group."""
    given: list[Integers] = [np.zeros(1, np.int32)] * size
    barrier = Barrier(size)

    def process(rank: int) -> Any:
        def total(values: Integers) -> Integers:
            given[rank] = values
            barrier.wait(PATIENCE)
            result: Integers = np.sum(given, axis=0, dtype=np.int32)
            barrier.wait(PATIENCE)
            return result

        return action(Summing(rank, size, total))

    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(process, range(size)))


@pytest.mark.parametrize("size", [1, 3])
def test_all_processes_get_the_values_of_all(size: int) -> None:
    values = ["", {"name": "é" * 300}, b"\xff" * 1000][:size]
    assert in_group(size, lambda group: group.all(values[group.rank])) == [values] * size


def test_the_highest_values_are_exact() -> None:
    def action(group: Exchange) -> list[float]:
        return group.highest(group.rank == 1, -0.1 * (group.rank + 1), 1e300)

    assert in_group(3, action) == [[1.0, -0.1, 1e300]] * 3


def test_the_first_acts_and_an_error_of_one_is_raised_in_all() -> None:
    def failing(group: Exchange) -> str:
        def act() -> int:
            if group.rank == 1:
                raise StorageError("no route to the storage")
            return group.rank

        assert group.by_first(act) == 0
        with pytest.raises(StorageError) as raised:
            group.agreed(act)
        return str(raised.value)

    assert in_group(3, failing) == ["no route to the storage"] * 3


def test_a_process_alone_exchanges_nothing() -> None:
    alone = groups.alone()
    assert (alone.all("x"), alone.highest(1, 2), alone.by_first(lambda: 3)) == (["x"], [1, 2], 3)
    assert alone.is_first
