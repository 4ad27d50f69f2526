"""The operations on the keys of report tokens."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from job_tracker.access.report_keys import ReportKeyAccess
from job_tracker.domain.audit import AuditEvent, Outcome
from job_tracker.domain.caller import BUILT_IN, Role
from job_tracker.domain.errors import Forbidden, LimitExceeded
from job_tracker.domain.report_key import MOST_KEYS
from job_tracker.reports import ReportKeys
from job_tracker.store.sqlite import SqliteStore
from tests.support.callers import caller_with
from tests.support.jobs import NOON, spec


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "jobs.db")
    yield store
    await store.close()


@pytest.fixture
async def keys(store: SqliteStore) -> ReportKeys:
    return await ReportKeys.open(store)


@pytest.fixture
def noted() -> list[AuditEvent]:
    """The audit events of denials."""
    return []


@pytest.fixture
def access(store: SqliteStore, keys: ReportKeys, noted: list[AuditEvent]) -> ReportKeyAccess:
    return ReportKeyAccess(store, keys, lambda: NOON, noted.append)


async def test_a_new_key_counts_when_the_call_returns(access: ReportKeyAccess, keys: ReportKeys) -> None:
    first = keys.current
    made = await access.rotate_report_key(BUILT_IN)
    assert (keys.current, made.made_by, made.made_at) == (made, BUILT_IN.name, NOON)
    assert made.secret != first.secret
    assert len(made.secret) == 32


async def test_there_is_a_largest_number_of_keys(access: ReportKeyAccess, store: SqliteStore) -> None:
    await store.update((await store.submit(spec(), NOON, None, 100)).admitted(NOON))
    for _ in range(MOST_KEYS - 1):
        await access.rotate_report_key(BUILT_IN)
    with pytest.raises(LimitExceeded, match="live attempts use 32 keys of report tokens, which is the limit"):
        await access.rotate_report_key(BUILT_IN)


@pytest.mark.parametrize("role", [None, Role.VIEWER, Role.ADMIN])
async def test_only_operators_may_know_of_keys(
    access: ReportKeyAccess, noted: list[AuditEvent], role: Role | None
) -> None:
    caller = caller_with(role)
    for call in (
        access.list_report_keys(caller),
        access.rotate_report_key(caller),
        access.remove_report_key(caller, 1),
    ):
        with pytest.raises(Forbidden, match=r"^only an operator may .* keys of reports, and \w+ is not one$"):
            await call
    assert len(await access.list_report_keys(BUILT_IN)) == 1
    assert [(event.action, event.outcome, event.target) for event in noted] == [
        ("list_report_keys", Outcome.DENIED, ""),
        ("rotate_report_key", Outcome.DENIED, ""),
        ("remove_report_key", Outcome.DENIED, "report key 1"),
    ]


async def test_each_change_of_keys_has_an_event_without_the_secret(
    access: ReportKeyAccess, store: SqliteStore
) -> None:
    await store.update((await store.submit(spec(), NOON, None, 100)).admitted(NOON))
    made = await access.rotate_report_key(BUILT_IN)
    for _ in range(2):
        await access.remove_report_key(BUILT_IN, 1)
    events = await store.events_after(0, 10)
    assert [(event.action, event.target, event.caller) for event in events] == [
        ("rotate_report_key", "report key 2", "operator"),
        ("remove_report_key", "report key 1", "operator"),
    ]
    assert made.secret.hex() not in repr(events)
