"""The lease that one of several replicas holds: who has it leads."""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Term:
    """A time during which one replica leads. Its number is for people; its token is nobody else's."""

    number: int
    token: str


class LeaseStore(Protocol):
    """Gives the lease to one replica at a time."""

    async def lead(self, holder: str, lifetime: timedelta, term: Term | None = None) -> Term | None:
        """Win the lease for so long if it is free, or renew it for so long if `term` is still the last.

        Returns a term that was never won before, or `term` itself; None if another holds the lease, or
        has won it since `term`. A term that nobody has taken over may be renewed after its lease is over,
        and may write. `holder` says who leads, to people.
        """
        ...

    async def resign(self, term: Term) -> None:
        """Free the lease at once, and tell those who wait for it. Nothing if the term is not the last."""
        ...

    def resignations(self) -> AbstractContextManager[AsyncIterator[object]]:
        """Something whenever the lease may have become free before its time, from now on."""
        ...
