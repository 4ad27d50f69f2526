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
        """Win the lease if it is free, or renew it if `term` is still the last term.

        Returns the new term, or `term` itself after a renewal. Returns None if another replica holds the
        lease, or has won it since `term`. A term whose lease has expired may still write and be renewed until
        another replica wins the lease. `holder` is the replica's name, for people.
        """
        ...

    async def resign(self, term: Term) -> None:
        """Free the lease at once, and announce this. Does nothing if a later term has been won."""
        ...

    def resignations(self) -> AbstractContextManager[AsyncIterator[object]]:
        """From now on, yield an item whenever the lease may have become free before its expiry."""
        ...
