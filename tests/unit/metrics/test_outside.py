"""Calls to stores and backends are observed with their results, and otherwise unchanged."""

import asyncio
from contextlib import aclosing
from typing import Protocol

import pytest

from job_tracker.backends.base import Mark, Observation, Watch
from job_tracker.domain.errors import BackendUnavailable, JobNotFound, StoreUnavailable
from job_tracker.domain.group import GroupRef
from tests.support.patience import PATIENCE
from training_service.metrics.outside import Result, observed


class Shop(Protocol):
    def greet(self) -> str: ...
    async def buy(self, what: str, *, number: int = 1) -> str: ...


class CornerShop:
    def __init__(self, trouble: BaseException | None = None) -> None:
        self.trouble = trouble

    def greet(self) -> str:
        return "hello"

    async def buy(self, what: str, *, number: int = 1) -> str:
        if self.trouble is not None:
            raise self.trouble
        return f"{number} {what}"

    async def close(self) -> None:
        pass


class Calls(list[tuple[str, Result]]):
    def __call__(self, operation: str, result: Result, seconds: float) -> None:
        assert 0 <= seconds < PATIENCE
        self.append((operation, result))


async def test_an_observed_call_returns_its_result() -> None:
    calls = Calls()
    shop: Shop = observed(CornerShop(), Shop, calls)
    assert await shop.buy("eggs", number=2) == "2 eggs"
    assert calls == [("buy", Result.OK)]


class Market(Shop, Protocol):
    async def close(self) -> None: ...


async def test_inherited_calls_of_a_protocol_are_observed() -> None:
    calls = Calls()
    await observed(CornerShop(), Market, calls).buy("eggs")
    assert calls == [("buy", Result.OK)]


async def test_other_attributes_are_not_observed() -> None:
    calls = Calls()
    assert observed(CornerShop(), Shop, calls).greet() == "hello"
    assert calls == []


@pytest.mark.parametrize(
    ("trouble", "result"),
    [
        (StoreUnavailable("away"), Result.UNAVAILABLE),
        (BackendUnavailable("away"), Result.UNAVAILABLE),
        (JobNotFound(1), Result.REFUSED),
        (asyncio.CancelledError(), Result.CANCELLED),
        (KeyError("a bug"), Result.FAILED),
    ],
)
async def test_an_error_is_raised_unchanged_and_observed_by_its_kind(
    trouble: BaseException, result: Result
) -> None:
    calls = Calls()
    with pytest.raises(type(trouble)) as raised:
        await observed(CornerShop(trouble), Shop, calls).buy("eggs")
    assert raised.value is trouble
    assert calls == [("buy", result)]


SEEN = (GroupRef("program-1", 1, 1), Observation(()))


class Watched(Protocol):
    def watch(self) -> Watch: ...


class OneGroup:
    """A backend whose watch fails before its mark, or after it."""

    def __init__(self, *, marks: bool) -> None:
        self.marks = marks

    async def watch(self) -> Watch:
        yield SEEN
        if self.marks:
            yield Mark.END_OF_SNAPSHOT
            yield SEEN
        raise BackendUnavailable("away")


@pytest.mark.parametrize(
    ("marks", "seen", "result"),
    [
        (True, [SEEN, Mark.END_OF_SNAPSHOT, SEEN], Result.OK),
        (False, [], Result.UNAVAILABLE),
    ],
)
async def test_the_snapshot_of_a_watch_is_observed(marks: bool, seen: list[object], result: Result) -> None:
    calls = Calls()
    one: Watched = observed(OneGroup(marks=marks), Watched, calls)
    async with aclosing(one.watch()) as watch:
        for change in seen:
            assert await anext(watch) == change
            assert calls == [("watch", Result.OK)]
        with pytest.raises(BackendUnavailable):
            await anext(watch)
    assert calls == [("watch", result)]
