"""The blocking and the asyncio client behind one interface, so that one suite tests both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Self

from training_service.client import AsyncTrainingClient, TrainingClient

Connect = Callable[..., TrainingClient]
"""Opens a client of either kind, with the arguments of TrainingClient."""


class BlockingClient:
    """An AsyncTrainingClient on its own event loop, with the blocking methods of TrainingClient."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._runner = asyncio.Runner()
        self._client = self._runner.run(_connect(*arguments, **options))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.run(self._client.close())
        self._runner.close()

    @property
    def address(self) -> str:
        return self._client.address

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(*arguments: Any, **options: Any) -> Any:
            result: AsyncIterator[Any] | Coroutine[Any, Any, Any] = method(*arguments, **options)
            return self._iterate(result) if isinstance(result, AsyncIterator) else self._runner.run(result)

        return call

    def _iterate(self, items: Any) -> Iterator[Any]:
        end = object()
        try:
            while (item := self._runner.run(_next(items, end))) is not end:
                yield item
        finally:
            self._runner.run(items.aclose())


async def _connect(*arguments: Any, **options: Any) -> AsyncTrainingClient:
    return AsyncTrainingClient(*arguments, **options)


async def _next(items: AsyncIterator[Any], end: object) -> Any:
    return await anext(items, end)
