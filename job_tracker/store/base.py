"""The protocol of a whole store. Only the store keeps the state of jobs durably.

The protocol consists of small protocols by subject. A user of a store depends only on the small protocols
that it needs.
"""

from typing import Protocol

from job_tracker.store.access import AccessStore
from job_tracker.store.audit import AuditStore
from job_tracker.store.declarations import DeclarationStore
from job_tracker.store.jobs import JobStore
from job_tracker.store.lease import LeaseStore
from job_tracker.store.queue import QueueView
from job_tracker.store.report_keys import ReportKeyStore
from job_tracker.store.reports import ReportStore
from job_tracker.store.scheduling import SchedulingStore


class StoreIdentity(Protocol):
    """Identifies a store."""

    async def store_id(self) -> str:
        """Return the store's id: 8 lower-case hex digits.

        The id is created with the store and never changes.
        """
        ...


class Store(
    JobStore,
    QueueView,
    ReportStore,
    LeaseStore,
    AccessStore,
    DeclarationStore,
    ReportKeyStore,
    AuditStore,
    SchedulingStore,
    StoreIdentity,
    Protocol,
):
    """All operations of a store. The suite in tests/contract/stores specifies each method in detail.

    Every write is atomic, but a write of many items may be split into several atomic parts. Every write
    except `record_reports` is durable when it returns; on a Redis server, it is as durable as the server's
    settings make it. Any call may raise StoreUnavailable. A write with a term raises LeadershipLost, and
    changes nothing, if the leader has resigned or a later term has been won.
    """

    async def close(self) -> None:
        """Finish pending writes, and release the store."""
        ...
