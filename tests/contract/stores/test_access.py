"""The contract of stores: tokens and projects."""

import asyncio
import hashlib
from dataclasses import replace
from datetime import timedelta

import pytest

from job_tracker.domain.access import Project, Token, TokenLimits
from job_tracker.domain.caller import Role
from job_tracker.domain.errors import TooManyTokens, UnknownProject
from job_tracker.domain.job import Ending, Job, JobState
from job_tracker.domain.policies import ProjectLimits
from job_tracker.store.base import Store
from job_tracker.store.jobs import RequestKey
from tests.support.jobs import NOON, spec
from tests.support.stores import Reopen

LONG_AGO = NOON - timedelta(days=365)
LATER = NOON + timedelta(hours=1)


def token(token_id: str = "aaaaaaaa", **changes: object) -> Token:
    given = Token(
        id=token_id,
        digest=hashlib.sha256(token_id.encode()).digest(),
        name="ci",
        project="vision",
        role=Role.SUBMITTER,
        created_at=NOON,
        created_by="operator",
    )
    return replace(given, **changes)  # type: ignore[arg-type]


async def added(store: Store, *tokens: Token) -> None:
    for each in tokens:
        assert await store.add_token(each, purge_before=LONG_AGO)


async def ids(store: Store, project: str | None = None, limit: int = 100, after: str = "") -> list[str]:
    return [each.id for each in await store.list_tokens(project, limit=limit, after=after)]


@pytest.mark.parametrize(
    "given",
    [
        token(),
        token(expires_at=LATER),
        token(project="", role=None, name="alice@example.com"),
        token(project="", role=Role.OPERATOR, created_by=""),
    ],
)
async def test_a_token_is_found_by_its_id_after_a_restart(reopen: Reopen, given: Token) -> None:
    await added(await reopen(), given)
    assert await (await reopen()).token(given.id) == given


async def test_an_unknown_token_is_not_found(store: Store) -> None:
    await added(store, token())
    assert await store.token("bbbbbbbb") is None
    assert await store.revoke_token("bbbbbbbb", NOON) is None


async def test_an_id_is_used_once(store: Store) -> None:
    await added(store, token())
    before = await store.access_version()
    other = token(name="another", digest=b"x" * 32)
    assert not await store.add_token(other, purge_before=LONG_AGO)
    assert await store.token("aaaaaaaa") == token()
    assert await store.access_version() in (before, before + 1)


async def test_tokens_are_listed_by_id_in_pages(store: Store) -> None:
    await added(store, token("cccccccc"), token("aaaaaaaa"), token("bbbbbbbb", project="", role=None))
    assert await ids(store) == ["aaaaaaaa", "bbbbbbbb", "cccccccc"]
    assert await ids(store, limit=2) == ["aaaaaaaa", "bbbbbbbb"]
    assert await ids(store, limit=2, after="bbbbbbbb") == ["cccccccc"]
    assert await ids(store, "vision") == ["aaaaaaaa", "cccccccc"]
    assert await ids(store, "vision", after="aaaaaaaa") == ["cccccccc"]
    assert await ids(store, "speech") == []


async def test_a_token_is_revoked_once(store: Store) -> None:
    await added(store, token())
    revoked = await store.revoke_token("aaaaaaaa", NOON)
    assert revoked == token(revoked_at=NOON)
    assert await store.revoke_token("aaaaaaaa", LATER) == revoked
    assert await store.token("aaaaaaaa") == revoked


async def test_the_last_use_of_tokens_is_kept(store: Store) -> None:
    await added(store, token("aaaaaaaa"), token("bbbbbbbb"))
    before = await store.access_version()
    await store.touch_tokens({"aaaaaaaa": LATER, "unknown0": LATER})
    assert await store.token("aaaaaaaa") == token("aaaaaaaa", used_at=LATER)
    assert await store.token("bbbbbbbb") == token("bbbbbbbb")
    assert await store.token("unknown0") is None
    assert await store.access_version() == before


async def test_tokens_that_ended_long_ago_are_deleted_when_others_are_added(store: Store) -> None:
    await added(
        store,
        token("expired0", expires_at=NOON),
        token("revoked0", expires_at=LATER + timedelta(days=9)),
        token("valid000", expires_at=LATER + timedelta(days=9)),
        token("forever0"),
        token("revoked1"),
    )
    for each in ("revoked0", "revoked1"):
        await store.revoke_token(each, NOON)
    assert await store.add_token(token("zzzzzzzz"), purge_before=LATER)
    assert await ids(store) == ["forever0", "valid000", "zzzzzzzz"]
    assert await ids(store, "vision") == ["forever0", "valid000", "zzzzzzzz"]
    assert await store.token("expired0") is None


async def test_a_project_is_kept_with_its_members_and_limits(reopen: Reopen) -> None:
    project = Project(
        name="vision",
        members={"alice": Role.ADMIN, "CN=bob,O=Example": Role.VIEWER, "é\n☃": Role.SUBMITTER},
        limits=ProjectLimits(max_queued=7),
    )
    assert await (await reopen()).put_project(project)
    assert await (await reopen()).projects() == [replace(project, version=1)]


async def test_projects_are_listed_by_name(store: Store) -> None:
    for name in ("b", "c", "a"):
        assert await store.put_project(Project(name=name))
    assert [each.name for each in await store.projects()] == ["a", "b", "c"]


async def test_of_two_writers_of_a_project_the_second_one_reads_again(store: Store) -> None:
    project = Project(name="vision")
    assert await store.put_project(project)
    assert not await store.put_project(project)
    first, second = replace(project, version=1), replace(project, version=1)
    outcomes = await asyncio.gather(store.put_project(first), store.put_project(second))
    assert sorted(outcomes) == [False, True]
    assert [each.version for each in await store.projects()] == [2]


async def test_a_deleted_project_leaves_no_valid_token(store: Store) -> None:
    await store.put_project(Project(name="vision"))
    await added(store, token("aaaaaaaa"), token("bbbbbbbb", project="speech"), token("cccccccc"))
    await store.revoke_token("cccccccc", NOON)
    assert await store.delete_project("vision", LATER) == 0
    revoked = {each.id: each.revoked_at for each in await store.list_tokens(None, limit=9)}
    assert revoked == {"aaaaaaaa": LATER, "bbbbbbbb": None, "cccccccc": NOON}
    assert await store.projects() == []
    assert await store.delete_project("vision", LATER) is None


async def test_a_project_with_jobs_that_have_not_ended_is_not_deleted(store: Store) -> None:
    await store.put_project(Project(name="vision"))
    await added(store, token())
    await store.submit(spec(project="speech"), NOON, None, 100)
    waiting = await store.submit(spec(project="vision"), NOON, None, 100)
    running = await store.update(waiting.admitted(NOON))
    await store.submit(spec(project="vision"), NOON, None, 100)
    paused = await store.submit(spec(project="vision"), NOON, None, 100)
    await store.update(replace(await store.update(paused.admitted(NOON)), state=JobState.BACKOFF))
    assert await store.delete_project("vision", LATER) == 3
    assert [project.name for project in await store.projects()] == ["vision"]
    assert [each.revoked_at for each in await store.list_tokens("vision", limit=9)] == [None]
    await store.update(running.ended(Ending(JobState.FAILED, NOON), NOON))
    assert await store.delete_project("vision", LATER) == 2


async def test_a_job_that_is_submitted_meanwhile_keeps_its_project(store: Store) -> None:
    await store.put_project(Project(name="vision"))
    _, left = await asyncio.gather(
        store.submit(spec(project="vision"), NOON, None, 100), store.delete_project("vision", LATER)
    )
    assert (left, [project.name for project in await store.projects()]) == (1, ["vision"])


async def test_no_job_is_submitted_to_a_deleted_project(store: Store) -> None:
    await store.put_project(Project(name="vision"))
    first = RequestKey("k", b"1", "vision")
    queued = await store.submit(spec(project="vision"), NOON, first, 100, 5, project_must_be_stored=True)
    await store.update(queued.ended(Ending(JobState.CANCELLED, NOON), NOON))
    left, late = await asyncio.gather(
        store.delete_project("vision", LATER),
        store.submit(spec(project="vision"), NOON, None, 100, 5, project_must_be_stored=True),
        return_exceptions=True,
    )
    if left:  # the submission came first, which is also correct
        assert isinstance(late, Job)
        await store.update(late.ended(Ending(JobState.CANCELLED, NOON), NOON))
        assert await store.delete_project("vision", LATER) == 0
    else:
        assert isinstance(late, UnknownProject)
    with pytest.raises(UnknownProject, match="vision doesn't exist"):
        await store.submit(spec(project="vision"), NOON, None, 100, project_must_be_stored=True)
    # The answer to a repeated request is its job.
    again = await store.submit(spec(project="vision"), NOON, first, 100, project_must_be_stored=True)
    assert again.id == queued.id
    # Projects that are declared in files are not stored.
    await store.submit(spec(project="speech"), NOON, None, 100)


async def test_each_change_has_a_version(store: Store) -> None:
    versions = [await store.access_version()]
    await added(store, token())
    versions.append(await store.access_version())
    await store.revoke_token("aaaaaaaa", NOON)
    versions.append(await store.access_version())
    await store.put_project(Project(name="vision"))
    versions.append(await store.access_version())
    await store.delete_project("vision", NOON)
    versions.append(await store.access_version())
    assert len(set(versions)) == len(versions)


async def limited(
    store: Store, given: Token, in_all: int | None = None, of_project: int | None = None
) -> bool:
    limits = TokenLimits(in_all=in_all, of_project=of_project)
    return await store.add_token(given, limits, purge_before=LONG_AGO)


async def test_the_number_of_tokens_is_limited_in_all_and_by_project(store: Store) -> None:
    for each in (token("aaaaaaaa"), token("bbbbbbbb"), token("cccccccc", project="speech")):
        assert await limited(store, each, in_all=4, of_project=2)
    before = await store.access_version()
    with pytest.raises(TooManyTokens, match=r"are 2 tokens of project vision.*limits\.tokens_of_project"):
        await limited(store, token("dddddddd"), in_all=4, of_project=2)
    assert await limited(store, token("dddddddd", project="speech"), in_all=4, of_project=2)
    with pytest.raises(TooManyTokens, match=r"there are 4 tokens, which is the limit \(limits\.tokens\)"):
        await limited(store, token("eeeeeeee", project="", role=None), in_all=4, of_project=2)
    assert await ids(store) == ["aaaaaaaa", "bbbbbbbb", "cccccccc", "dddddddd"]
    assert await store.access_version() == before + 1


async def test_tokens_that_ended_make_room_for_others_the_first_one_first(store: Store) -> None:
    ended = [NOON - timedelta(hours=hours) for hours in (1, 3, 2)]
    await added(
        store,
        token("revoked0"),
        token("expired1", expires_at=ended[1]),
        token("expired2", expires_at=ended[2], project="speech"),
        token("valid000", expires_at=LATER),
    )
    await store.revoke_token("revoked0", ended[0])
    assert await limited(store, token("new00000", project=""), in_all=4)
    assert await ids(store) == ["expired2", "new00000", "revoked0", "valid000"]
    assert await limited(store, token("new11111"), of_project=2)
    assert await ids(store) == ["expired2", "new00000", "new11111", "valid000"]
    assert await ids(store, "vision") == ["new11111", "valid000"]
    with pytest.raises(TooManyTokens):
        await limited(store, token("new22222"), of_project=2)
    assert await limited(store, token("new22222", project="speech"), in_all=4, of_project=1)
    assert await ids(store) == ["new00000", "new11111", "new22222", "valid000"]


async def test_tokens_that_are_added_together_do_not_pass_the_limit(store: Store) -> None:
    outcomes = await asyncio.gather(
        *(limited(store, token(f"token{n:03}"), of_project=5) for n in range(20)), return_exceptions=True
    )
    assert outcomes.count(True) == 5
    assert sum(isinstance(each, TooManyTokens) for each in outcomes) == 15
    assert len(await ids(store, "vision")) == 5
