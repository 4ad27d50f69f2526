"""Calls to the outside are told with their result, and nothing else about them changes."""

import asyncio
from typing import Protocol

import pytest

from job_tracker.domain.errors import BackendUnavailable, JobNotFound, StoreUnavailable
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
        """See Shop."""
        if self.trouble is not None:
            raise self.trouble
        return f"{number} {what}"

    async def close(self) -> None:
        """See Market."""


class Told(list[tuple[str, Result]]):
    def __call__(self, operation: str, result: Result, seconds: float) -> None:
        assert 0 <= seconds < 10
        self.append((operation, result))


async def test_a_call_gives_what_it_gave_before_and_is_told() -> None:
    told = Told()
    shop: Shop = observed(CornerShop(), Shop, told)
    assert await shop.buy("eggs", number=2) == "2 eggs"
    assert told == [("buy", Result.OK)]


class Market(Shop, Protocol):
    async def close(self) -> None: ...


async def test_calls_that_a_protocol_inherits_are_told_as_its_own() -> None:
    told = Told()
    await observed(CornerShop(), Market, told).buy("eggs")
    assert told == [("buy", Result.OK)]


async def test_what_is_no_call_to_the_outside_is_passed_on_untold() -> None:
    told = Told()
    assert observed(CornerShop(), Shop, told).greet() == "hello"
    assert told == []


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
async def test_trouble_is_raised_as_it_is_and_told_by_its_kind(
    trouble: BaseException, result: Result
) -> None:
    told = Told()
    with pytest.raises(type(trouble)) as raised:
        await observed(CornerShop(trouble), Shop, told).buy("eggs")
    assert raised.value is trouble
    assert told == [("buy", result)]
