"""A whole store: the only place where a job's state is, and the only one that is durable.

It is several small protocols by subject. Who uses a store asks for those alone that it needs.
"""

from typing import Protocol

from job_tracker.store.jobs import JobStore
from job_tracker.store.lease import LeaseStore
from job_tracker.store.queue import QueueView
from job_tracker.store.reports import ReportStore


class StoreIdentity(Protocol):
    """Tells a store from others."""

    async def store_id(self) -> str:
        """8 lower-case hex digits, made with the store and always the same: they tell it from others."""
        ...

    async def secret(self) -> bytes:
        """32 random bytes, made with the store and always the same."""
        ...


class Store(JobStore, QueueView, ReportStore, LeaseStore, StoreIdentity, Protocol):
    """Everything that a store does. One contract suite (tests/contract) says in detail what each method owes.

    Every write is atomic and durable when it returns. Any call may raise StoreUnavailable. A write that
    is given a term raises LeadershipLost, having changed nothing, unless that is the last term that was won.
    """

    async def close(self) -> None:
        """Finish what is being written, and let go."""
        ...
