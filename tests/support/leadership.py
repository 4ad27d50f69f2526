"""Leadership without an election."""

from datetime import timedelta

from job_tracker.common.clock import boot_seconds
from job_tracker.store.lease import LeaseStore
from job_tracker.tracking.leadership import Tenure

_LIFETIME = timedelta(hours=1)


async def elected(store: LeaseStore) -> Tenure:
    """Win the lease, and return a tenure that outlasts the test. There must be no other leader."""
    term = await store.lead("test", _LIFETIME)
    assert term is not None, "another replica leads"
    return Tenure(term, boot_seconds() + _LIFETIME.total_seconds())
