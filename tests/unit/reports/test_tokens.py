"""Report tokens are valid for one attempt, and cannot be made without a key."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from job_tracker.domain.errors import NotAllowed
from job_tracker.domain.job import Job
from job_tracker.domain.report_key import ReportKey
from job_tracker.reports import ReportKeys, ReportTokens
from job_tracker.reports.tokens import token_with
from job_tracker.store.sqlite import SqliteStore
from tests.support.jobs import NOON, spec

OTHER = ReportKey(id=1, secret=b"other")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "jobs.db")
    yield store
    await store.close()


@pytest.fixture
async def keys(store: SqliteStore) -> ReportKeys:
    return await ReportKeys.open(store)


@pytest.fixture
def tokens(keys: ReportKeys) -> ReportTokens:
    return ReportTokens(keys)


async def live(store: SqliteStore) -> Job:
    job = await store.submit(spec(), NOON, None, 100)
    return await store.update(job.admitted(NOON))


async def rotate(store: SqliteStore, keys: ReportKeys, secret: bytes = b"next") -> None:
    await store.rotate_report_key(secret, NOON, "ada")
    await keys.refresh()


async def test_a_token_names_its_attempt(tokens: ReportTokens, store: SqliteStore) -> None:
    assert await tokens.read(tokens.issue(7, 2)) == (7, 2)
    assert tokens.issue(7, 2) == ReportTokens(await ReportKeys.open(store)).issue(7, 2)


async def test_a_token_of_another_attempt_job_or_service_is_invalid(tokens: ReportTokens) -> None:
    _, _, mac = tokens.issue(7, 2).split(".")
    for forged in (f"7.3.{mac}", f"8.2.{mac}", f"07.2.{mac}", f"7.2.1.{mac[::-1]}", token_with(OTHER, 7, 2)):
        with pytest.raises(NotAllowed, match="did not issue the report token"):
            await tokens.read(forged)


@pytest.mark.parametrize(
    "token",
    [
        *("", "7", "7.2", "7.2.x", "a.b.c", "7.2." + "x" * 99, "7.2.\n", "٧.2." + "x" * 43),
        *("7.2.1.1." + "x" * 43, "7.2..1" + "x" * 43, "7.2.-1." + "x" * 43, f"7.2.{10**9}." + "x" * 43),
    ],
)
async def test_a_malformed_token_is_refused(tokens: ReportTokens, token: str) -> None:
    with pytest.raises(NotAllowed, match="token is malformed"):
        await tokens.read(token)


async def test_tokens_of_earlier_versions_are_of_the_first_key(
    tokens: ReportTokens, store: SqliteStore, keys: ReportKeys
) -> None:
    job = await live(store)
    [first] = await store.report_keys()
    before = token_with(first, job.id, 1)
    assert before.count(".") == 2
    assert before == tokens.issue(job.id, 1)
    await rotate(store, keys)
    assert await tokens.read(before) == (job.id, 1)


async def test_an_attempt_keeps_its_key_and_a_later_one_gets_the_next(
    tokens: ReportTokens, store: SqliteStore, keys: ReportKeys
) -> None:
    before = await live(store)
    issued, group = tokens.issue(before.id, 1), tokens.group(before.id, 1)
    await rotate(store, keys)
    between = await live(store)
    second = tokens.issue(between.id, 1), tokens.group(between.id, 1)
    await rotate(store, keys, b"third")
    assert (tokens.issue(before.id, 1), tokens.group(before.id, 1)) == (issued, group)
    assert (tokens.issue(between.id, 1), tokens.group(between.id, 1)) == second
    after = await live(store)
    named = [tokens.issue(job.id, 1).split(".")[2:-1] for job in (before, between, after)]
    assert named == [[], ["2"], ["3"]]
    for job in (before, between, after):
        assert await tokens.read(tokens.issue(job.id, 1)) == (job.id, 1)


async def test_a_token_of_a_removed_key_is_refused_and_the_attempt_gets_another(
    tokens: ReportTokens, store: SqliteStore, keys: ReportKeys
) -> None:
    job = await live(store)
    before, group = tokens.issue(job.id, 1), tokens.group(job.id, 1)
    await rotate(store, keys)
    await store.remove_report_key(1, NOON)
    await keys.refresh()
    with pytest.raises(NotAllowed) as caught:
        await tokens.read(before)
    assert str(caught.value) == (
        "an operator removed key 1 of report tokens at 2026-11-21 12:00:00 UTC. This attempt can "
        "no longer report by calls; the next attempt gets a new token"
    )
    with pytest.raises(NotAllowed, match="did not issue"):
        await tokens.read(token_with(OTHER, job.id, 1))
    assert tokens.group(job.id, 1) == group, "a rank that starts again must recognise the others"
    assert await tokens.read(tokens.issue(job.id, 1)) == (job.id, 1)


async def test_a_token_of_a_key_that_was_made_elsewhere_a_moment_ago_is_read(
    tokens: ReportTokens, store: SqliteStore, keys: ReportKeys
) -> None:
    made = await store.rotate_report_key(b"next", NOON, "ada")
    assert made is not None
    assert keys.current.id == 1, "this replica has not looked yet"
    assert await tokens.read(token_with(made, 7, 2)) == (7, 2)


async def test_a_key_that_the_store_does_not_have_is_named(tokens: ReportTokens) -> None:
    with pytest.raises(NotAllowed, match="of key 5, which this service does not have"):
        await tokens.read(token_with(ReportKey(id=5, secret=b"lost"), 7, 2))
