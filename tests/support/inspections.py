"""Inspections of real ranks, which may not come to their end at once."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from job_tracker.backends.base import RankAccess
from job_tracker.domain.group import GroupRef
from job_tracker.reports.ranks import Outside
from job_tracker.tracking.inspecting import inspect_by
from tests.support.patience import PATIENCE

Found = Mapping[int, Sequence[Outside]]


async def inspected(
    access: RankAccess, group: GroupRef, ranks: Collection[int], condition: Callable[[Found], bool]
) -> Found:
    """Inspect the ranks until the findings meet the condition, and return the last findings.

    On a busy machine, a rank that runs may not have reached the expected code yet, and an inspection may not
    be done within the limits of the service.
    """
    inspect, deadline = inspect_by(access), time.monotonic() + PATIENCE
    while not condition(found := await inspect(group, ranks)) and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    return found
