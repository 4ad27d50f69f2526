"""The operations on tokens and projects."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from job_tracker.access import operations
from job_tracker.access.callers import Callers
from job_tracker.access.operations import Access
from job_tracker.access.projects import Projects
from job_tracker.domain.access import Project
from job_tracker.domain.audit import AuditEvent, Outcome
from job_tracker.domain.caller import BUILT_IN, Caller, Role
from job_tracker.domain.errors import (
    Forbidden,
    InvalidField,
    LimitExceeded,
    NotPossible,
    UnknownReference,
)
from job_tracker.domain.policies import ProjectLimits
from job_tracker.store.audit import AuditFilter
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
def noted() -> list[AuditEvent]:
    """The audit events of denials."""
    return []


@pytest.fixture
async def access(store: Store, noted: list[AuditEvent]) -> Access:
    projects = Projects(store)
    callers = Callers(store, projects)
    await callers.refresh()
    made = Access(store, projects, callers, lambda: datetime(2026, 5, 4, 12, tzinfo=UTC), note=noted.append)
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
    with pytest.raises(
        InvalidField, match=r"lifetime: .* is not allowed; allowed: more than 0 s, up to 3650 days"
    ):
        await access.create_token(ADMIN, "ci", "vision", Role.VIEWER, lifetime)


async def test_a_token_of_another_project_does_not_exist_for_an_admin(access: Access) -> None:
    made, _ = await access.create_token(BUILT_IN, "alice", "", None, None)
    with pytest.raises(UnknownReference, match="doesn't exist"):
        await access.revoke_token(ADMIN, made.id)
    with pytest.raises(
        Forbidden, match="only an operator may list tokens of all projects, and ada is not one"
    ):
        await access.list_tokens(ADMIN, "", limit=10, after="")
    with pytest.raises(Forbidden, match="only an operator may delete projects, and ada is not one"):
        await access.delete_project(ADMIN, "vision")


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


async def token_of(access: Access, project: str = "vision") -> str:
    made, _ = await access.create_token(BUILT_IN, "ci", project, Role.VIEWER, timedelta(days=1))
    return made.id


CHANGES: dict[str, Callable[[Access, Caller], Any]] = {
    "create_token": lambda access, caller: access.create_token(
        caller, "bob", "vision", Role.VIEWER, timedelta(days=1)
    ),
    "revoke_token": lambda access, caller: revoke_own(access, caller),
    "set_project": lambda access, caller: access.set_project(caller, "vision", ProjectLimits(max_queued=7)),
    "set_member": lambda access, caller: access.set_member(caller, "vision", "alice", Role.ADMIN),
    "remove_member": lambda access, caller: access.remove_member(caller, "vision", "alice"),
    "delete_project": lambda access, caller: access.delete_project(caller, "vision"),
}
"""Operations in an order in which each of them changes something."""


async def revoke_own(access: Access, caller: Caller) -> object:
    [token], _ = await access.list_tokens(BUILT_IN, "vision", limit=1, after="")
    return await access.revoke_token(caller, token.id)


async def events(access: Access) -> list[AuditEvent]:
    found, _ = await access.list_events(BUILT_IN, AuditFilter(), limit=100, before=None)
    return list(found)


def test_every_operation_that_changes_something_is_tried() -> None:
    operations = {name for name, each in vars(Access).items() if callable(each) and name[0] != "_"}
    assert set(CHANGES) == operations - {"list_tokens", "list_events", "list_projects"}


async def test_every_change_has_an_event(access: Access) -> None:
    before = len(await events(access))
    for change in CHANGES.values():
        await change(access, BUILT_IN)
    found = (await events(access))[: -before or None]
    assert [event.action for event in reversed(found)] == list(CHANGES)
    assert {(event.caller, event.means, event.outcome, event.project) for event in found} == {
        ("operator", "open", Outcome.DONE, "vision")
    }
    by_action = {event.action: (event.target.partition(" ")[0], event.detail) for event in found}
    assert by_action == {
        "create_token": ("token", "name bob, role viewer, expires 2026-05-05 12:00 UTC"),
        "revoke_token": ("token", "name bob"),
        "set_project": ("project", "max_queued 7"),
        "set_member": ("member", "role admin"),
        "remove_member": ("member", ""),
        "delete_project": ("project", ""),
    }


async def test_a_change_that_changes_nothing_has_no_second_event(access: Access) -> None:
    token_id = await token_of(access)
    for _ in range(3):
        await access.revoke_token(BUILT_IN, token_id)
        await access.set_project(BUILT_IN, "vision", ProjectLimits(max_queued=3))
        await access.set_member(BUILT_IN, "vision", "alice", Role.VIEWER)
    found = [event.action for event in reversed(await events(access))]
    assert found == ["set_project", "create_token", "revoke_token", "set_project", "set_member"]


async def test_no_event_has_the_text_of_a_token(access: Access) -> None:
    made, _ = await access.create_token(BUILT_IN, "ci", "vision", Role.VIEWER, None)
    await access.revoke_token(BUILT_IN, made.id)
    assert made.text[13:] not in repr(await events(access))


async def test_a_token_in_place_of_a_name_or_an_id_is_refused_and_not_repeated(access: Access) -> None:
    made, _ = await access.create_token(BUILT_IN, "bob", "", None, None)
    for call in (
        access.revoke_token(BUILT_IN, made.text),
        access.revoke_token(VIEWER, made.text),
        access.set_member(ADMIN, "vision", made.text, Role.VIEWER),
        access.remove_member(ADMIN, "vision", made.text),
        access.create_token(BUILT_IN, made.text, "", None, None),
    ):
        with pytest.raises(InvalidField, match="it is a whole token") as refused:
            await call
        assert made.text[13:] not in str(refused.value)


@pytest.mark.parametrize("operation", [*CHANGES, "list_tokens", "list_events"])
async def test_every_denial_is_noted(access: Access, noted: list[AuditEvent], operation: str) -> None:
    await token_of(access)
    calls = CHANGES | {
        "list_tokens": lambda access, caller: access.list_tokens(caller, "vision", limit=1, after=""),
        "list_events": lambda access, caller: access.list_events(
            caller, AuditFilter(project="vision"), limit=1, before=None
        ),
    }
    before = await events(access)
    with pytest.raises((Forbidden, UnknownReference)):
        await calls[operation](access, VIEWER)
    [event] = noted
    assert (event.action, event.outcome, event.caller) == (operation, Outcome.DENIED, "ada")
    everywhere = operation in ("set_project", "delete_project")
    assert (event.project, event.target.partition(" ")[0]) == (
        ("", "project") if everywhere else ("vision", "token" if operation == "revoke_token" else "")
    )
    assert await events(access) == before


async def test_a_text_that_is_no_project_is_not_noted(access: Access, noted: list[AuditEvent]) -> None:
    """It may be a secret that the caller sent by mistake."""
    secret = "tst_abcdefgh_" + "S" * 43
    for call in (
        access.list_tokens(VIEWER, secret, limit=1, after=""),
        access.create_token(VIEWER, "ci", secret, Role.VIEWER, None),
        access.set_project(VIEWER, secret, ProjectLimits()),
        access.delete_project(VIEWER, secret),
        access.set_member(VIEWER, secret, secret, Role.VIEWER),
        access.remove_member(VIEWER, secret, secret),
        access.list_events(VIEWER, AuditFilter(project=secret), limit=1, before=None),
    ):
        with pytest.raises(Forbidden):
            await call
    with pytest.raises(InvalidField):
        await access.revoke_token(VIEWER, secret)
    assert len(noted) == 7
    assert "S" * 43 not in repr(noted)


async def test_events_have_pages_and_only_admins_and_operators_read_them(access: Access) -> None:
    for name in ("a", "b", "c"):
        await access.set_member(BUILT_IN, "vision", name, Role.VIEWER)
    where = AuditFilter(project="vision")
    first, before = await access.list_events(ADMIN, where, limit=3, before=None)
    second, end = await access.list_events(ADMIN, where, limit=3, before=before)
    assert [event.target for event in (*first, *second)] == [
        "member c",
        "member b",
        "member a",
        "project vision",
    ]
    assert end is None
    for caller, project in ((VIEWER, "vision"), (ADMIN, "speech"), (ADMIN, "")):
        with pytest.raises(Forbidden):
            await access.list_events(caller, AuditFilter(project=project), limit=3, before=None)
