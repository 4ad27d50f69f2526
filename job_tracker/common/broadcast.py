"""Broadcasts changes: each subscriber gets the latest value of each changed key once."""

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Subscription(AsyncIterator[tuple[K, V]], Generic[K, V]):
    """Yields each changed key with its latest value.

    A slow reader may miss earlier values, but gets the last one.
    """

    def __init__(self) -> None:
        self._pending: dict[K, V] = {}
        self._arrived = asyncio.Event()

    def put(self, key: K, value: V) -> None:
        """Record the latest value of a key."""
        self._pending[key] = value
        self._arrived.set()

    async def __anext__(self) -> tuple[K, V]:
        await self._wait_for_change()
        key = next(iter(self._pending))
        return key, self._pending.pop(key)

    async def batch(self) -> dict[K, V]:
        """Wait for at least one change, and return all changes that were not read before."""
        await self._wait_for_change()
        batch, self._pending = self._pending, {}
        return batch

    def take(self) -> dict[K, V]:
        """Return all changes that were not read before, without waiting."""
        batch, self._pending = self._pending, {}
        return batch

    async def _wait_for_change(self) -> None:
        while not self._pending:
            self._arrived.clear()
            await self._arrived.wait()


class Broadcast(Generic[K, V]):
    """Passes changes from one writer to any number of readers within one event loop."""

    def __init__(self) -> None:
        self._of_all: set[Subscription[K, V]] = set()
        self._of_key: dict[K, set[Subscription[K, V]]] = {}

    def publish(self, key: K, value: V, *, by: Subscription[K, V] | None = None) -> None:
        """Pass a change on to the subscribers of `key` and of all keys, but not to its author `by`."""
        for subscription in (*self._of_all, *self._of_key.get(key, ())):
            if subscription is not by:
                subscription.put(key, value)

    def watched(self) -> list[K]:
        """Return the keys with subscribers of their own. Subscribers of all keys do not count."""
        return list(self._of_key)

    @contextmanager
    def subscribe(self, key: K | None = None) -> Iterator[Subscription[K, V]]:
        """Subscribe to the changes of `key`, or of every key, from now on."""
        subscription = Subscription[K, V]()
        group = self._of_all if key is None else self._of_key.setdefault(key, set())
        group.add(subscription)
        try:
            yield subscription
        finally:
            group.discard(subscription)
            if key is not None and not group:
                self._of_key.pop(key, None)
