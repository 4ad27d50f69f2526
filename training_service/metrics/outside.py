"""Observes calls to a store or a backend: their durations and results."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from enum import StrEnum
from typing import Any, Protocol, TypeVar, cast

from job_tracker.backends.base import Mark, Watch, snapshot_of
from job_tracker.domain.errors import BackendUnavailable, StorageUnavailable, StoreUnavailable, TrackerError

T = TypeVar("T")


class Result(StrEnum):
    """The result of a call. REFUSED is an expected error; FAILED is an unexpected one."""

    OK = "ok"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"
    CANCELLED = "cancelled"
    FAILED = "failed"


class OutsideObserver(Protocol):
    """A function that is called after each call to a store or a backend."""

    def __call__(self, operation: str, result: Result, seconds: float) -> None:
        """`operation` is the name of the method, such as "update"."""
        ...


def observed(target: T, protocol: type, observe: OutsideObserver) -> T:
    """Return a wrapper of `target` that calls `observe` after each call of a coroutine method of the
    protocol.

    The call of a method that returns a watch is observed when the snapshot of the watch is complete. Later
    changes are not observed.
    """
    return cast(T, _Observed(target, protocol, observe))


class _Observed:
    def __init__(self, target: object, protocol: type, observe: OutsideObserver) -> None:
        self._target = target
        for name, member in inspect.getmembers(protocol, inspect.isfunction):
            if inspect.iscoroutinefunction(member):
                setattr(self, name, _timed(name, getattr(target, name), observe))
            elif member.__annotations__.get("return") == Watch:
                setattr(self, name, _timed_snapshot(name, getattr(target, name), observe))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


def _timed(
    name: str, method: Callable[..., Awaitable[Any]], observe: OutsideObserver
) -> Callable[..., Awaitable[Any]]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        started, result = time.perf_counter(), Result.OK
        try:
            return await method(*args, **kwargs)
        except BaseException as error:
            result = _result_of(error)
            raise
        finally:
            observe(name, result, time.perf_counter() - started)

    return call


def _timed_snapshot(
    name: str, method: Callable[..., Watch], observe: OutsideObserver
) -> Callable[..., Watch]:
    async def watch(*args: Any, **kwargs: Any) -> Watch:
        async with aclosing(method(*args, **kwargs)) as changes:
            for each in (await _timed(name, snapshot_of, observe)(changes)).items():
                yield each
            yield Mark.END_OF_SNAPSHOT
            async for change in changes:
                yield change

    return watch


def _result_of(error: BaseException) -> Result:
    match error:
        case StoreUnavailable() | StorageUnavailable() | BackendUnavailable():
            return Result.UNAVAILABLE
        case TrackerError():
            return Result.REFUSED
        case asyncio.CancelledError():
            return Result.CANCELLED
        case _:
            return Result.FAILED
