"""The operations on tokens and projects."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from job_tracker.access import operations
from job_tracker.access.callers import Callers
from job_tracker.access.operations import Access
from job_tracker.access.projects import Projects
from job_tracker.domain.access import Project
from job_tracker.domain.caller import BUILT_IN, Role
from job_tracker.domain.errors import (
    Forbidden,
    InvalidField,
    LimitExceeded,
    NotPossible,
    UnknownReference,
)
from job_tracker.domain.policies import ProjectLimits
from job_tracker.store.base import Store
from job_tracker.store.sqlite import SqliteStore
from tests.support.callers import caller_with

ADMIN, VIEWER = caller_with(Role.ADMIN), caller_with(Role.VIEWER)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await SqliteStore.open(tmp_path / "jobs.db")
    yield store
    await store.close()


@pytest.fixture
async def access(store: Store) -> Access:
    projects = Projects(store)
    callers = Callers(store, projects)
    await callers.refresh()
    made = Access(store, projects, callers, lambda: datetime(2026, 5, 4, 12, tzinfo=UTC))
    await made.set_project(BUILT_IN, "vision", ProjectLimits())
    return made


async def test_changes_at_the_same_time_are_all_kept(access: Access) -> None:
    names = {f"member-{number}" for number in range(10)}
    await asyncio.gather(*(access.set_member(ADMIN, "vision", name, Role.VIEWER) for name in names))
    [view] = await access.list_projects(ADMIN)
    assert set(view.project.members) == names


async def test_limits_and_members_are_changed_apart(access: Access) -> None:
    await access.set_member(ADMIN, "vision", "alice", Role.VIEWER)
    changed = await access.set_project(BUILT_IN, "vision", ProjectLimits(max_queued=3))
    assert (changed.members, changed.limits) == ({"alice": Role.VIEWER}, ProjectLimits(max_queued=3))


async def test_only_admins_see_members(access: Access) -> None:
    await access.set_member(ADMIN, "vision", "alice", Role.VIEWER)
    [view] = await access.list_projects(VIEWER)
    assert (view.project.name, view.project.members, view.role) == ("vision", {}, Role.VIEWER)
    assert [each.project.name for each in await access.list_projects(BUILT_IN)] == ["default", "vision"]
    assert await access.list_projects(caller_with(None)) == []


async def test_a_project_has_a_largest_number_of_members(
    access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "MOST_MEMBERS", 1)
    await access.set_member(ADMIN, "vision", "alice", Role.VIEWER)
    await access.set_member(ADMIN, "vision", "alice", Role.ADMIN)
    with pytest.raises(LimitExceeded, match="project vision has 1 members, which is the limit"):
        await access.set_member(ADMIN, "vision", "bob", Role.VIEWER)


@pytest.mark.parametrize("member", ["", "x" * 513, "a\nb", "\x1b[2J"])
async def test_a_name_that_cannot_be_shown_is_no_member(access: Access, member: str) -> None:
    with pytest.raises(InvalidField, match="use 1 to 512 printable characters"):
        await access.set_member(ADMIN, "vision", member, Role.VIEWER)


async def test_a_project_has_no_operators(access: Access) -> None:
    with pytest.raises(InvalidField, match="operator is not allowed in a project"):
        await access.set_member(BUILT_IN, "vision", "alice", Role.OPERATOR)


@pytest.mark.parametrize("name", ["Vision", "", "a/b", "x" * 41])
async def test_a_project_has_a_valid_name(access: Access, name: str) -> None:
    with pytest.raises(InvalidField, match=r"name: .* is not allowed; use 1 to 40"):
        await access.set_project(BUILT_IN, name, ProjectLimits())


async def test_the_project_default_is_changed_but_not_deleted(access: Access) -> None:
    await access.set_member(BUILT_IN, "default", "alice", Role.VIEWER)
    with pytest.raises(NotPossible, match="project default always exists; remove its members instead"):
        await access.delete_project(BUILT_IN, "default")
    await access.remove_member(BUILT_IN, "default", "alice")


async def test_what_does_not_exist_is_named(access: Access) -> None:
    for call in (
        access.delete_project(BUILT_IN, "speech"),
        access.set_member(BUILT_IN, "speech", "alice", Role.VIEWER),
        access.create_token(BUILT_IN, "ci", "speech", Role.VIEWER, None),
    ):
        with pytest.raises(UnknownReference, match="project: 'speech' doesn't exist"):
            await call
    with pytest.raises(UnknownReference, match="member: 'alice' has no role in project vision"):
        await access.remove_member(ADMIN, "vision", "alice")
    with pytest.raises(UnknownReference, match="token: 'aaaaaaaa' doesn't exist"):
        await access.revoke_token(BUILT_IN, "aaaaaaaa")


@pytest.mark.parametrize("lifetime", [timedelta(0), timedelta(seconds=-1), timedelta(days=3651)])
async def test_a_lifetime_has_bounds(access: Access, lifetime: timedelta) -> None:
    with pytest.raises(InvalidField, match=r"lifetime: .* is not allowed; allowed: up to 3650 days"):
        await access.create_token(ADMIN, "ci", "vision", Role.VIEWER, lifetime)


async def test_a_token_of_another_project_does_not_exist_for_an_admin(access: Access) -> None:
    made, _ = await access.create_token(BUILT_IN, "alice", "", None, None)
    with pytest.raises(UnknownReference, match="doesn't exist"):
        await access.revoke_token(ADMIN, made.id)
    with pytest.raises(
        Forbidden, match="only an operator may list tokens of all projects, and ada is not one"
    ):
        await access.list_tokens(ADMIN, "", limit=10, after="")


async def test_a_project_of_a_file_is_changed_there_only(store: Store) -> None:
    projects = Projects(store, lambda: FILE)
    callers = Callers(store, projects)
    await callers.refresh()
    access = Access(store, projects, callers)
    for call in (
        access.set_project(BUILT_IN, "vision", ProjectLimits()),
        access.delete_project(BUILT_IN, "vision"),
        access.set_member(BUILT_IN, "vision", "alice", Role.VIEWER),
        access.remove_member(BUILT_IN, "vision", "alice"),
    ):
        with pytest.raises(NotPossible, match="project vision is declared in a file of the service"):
            await call
    assert await store.projects() == []


FILE = {"vision": Project(name="vision")}
