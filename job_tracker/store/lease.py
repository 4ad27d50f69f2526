"""The protocol of the lease, whose holder is the leader among several replicas."""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Term:
    """A period in which one replica leads. Its number is for logs; its token is unique."""

    number: int
    token: str


class LeaseStore(Protocol):
    """Gives the lease to one replica at a time."""

    async def lead(self, holder: str, lifetime: timedelta, term: Term | None = None) -> Term | None:
        """Win the lease if it is free; with a `term`, renew the lease of this term instead.

        Returns the new term, or `term` itself after a renewal. Returns None if another replica holds the
        lease, or if `term` was resigned or a later term has been won. A term whose lease has expired stays
        valid, and may be renewed, until another replica wins the lease. `holder` is the replica's name, which
        is only shown to people.
        """
        ...

    async def resign(self, term: Term) -> None:
        """Free the lease at once, and announce this. Does nothing if a later term has been won."""
        ...

    def resignations(self) -> AbstractContextManager[AsyncIterator[object]]:
        """Return a context manager that gives an iterator.

        Within the context, the iterator yields an item whenever the lease may have become free before its
        expiry.
        """
        ...
