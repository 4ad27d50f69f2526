"""The function by which the parts of a SQLite store read rows. The store passes it to these parts."""

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Read(Protocol):
    """Reads rows in a thread."""

    def __call__(
        self, parse: Callable[[list[sqlite3.Row]], list[T]], query: str, *values: Any
    ) -> Awaitable[list[T]]:
        """Return the result of `parse` for the rows of the query. `values` are bound to the query."""
        ...
