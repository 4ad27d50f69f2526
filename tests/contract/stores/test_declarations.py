"""The contract of stores: declared algorithms, datasets and queues."""

import asyncio
from dataclasses import replace

import pytest

from job_tracker.domain.access import Project
from job_tracker.domain.audit import AuditEvent, Outcome
from job_tracker.domain.declaration import Declaration, DeclarationLimits, Kind
from job_tracker.domain.errors import TooManyDeclarations, UnknownProject
from job_tracker.store.audit import AuditFilter
from job_tracker.store.base import Store
from tests.support.jobs import NOON
from tests.support.stores import Reopen

EVENT = AuditEvent(at=NOON, action="set_algorithm", outcome=Outcome.DONE)


def declared(name: str = "train", project: str = "", kind: Kind = Kind.ALGORITHM) -> Declaration:
    return Declaration(
        kind=kind, name=name, project=project, definition='{"a":"é\\n"}', changed_at=NOON, changed_by="ada/ci"
    )


async def put(store: Store, *declarations: Declaration) -> None:
    for each in declarations:
        assert await store.put_declaration(each, await store.declarations_version())


async def test_declarations_are_kept_with_the_number_of_their_change(store: Store, reopen: Reopen) -> None:
    assert await store.declarations() == (0, [])
    first, second, third = declared("b"), declared("a", "vision"), declared("a", kind=Kind.DATASET)
    await put(store, first, second, third)
    again = await reopen()
    assert await again.declarations_version() == 3
    assert await again.declarations() == (
        3,
        [replace(first, version=1), replace(second, version=2), replace(third, version=3)],
    )


async def test_a_change_replaces_the_definition_and_gets_the_next_number(store: Store) -> None:
    await put(store, declared("a"), declared("b"), changed := replace(declared("a"), definition="{}"))
    assert (await store.declarations())[1] == [
        replace(changed, version=3),
        replace(declared("b"), version=2),
    ]


async def test_a_deleted_project_gets_no_declaration_from_a_replica_that_still_knows_it(store: Store) -> None:
    assert await store.put_project(Project(name="vision"))
    assert await store.put_declaration(declared("a", "vision"), 0, project_must_be_stored=True)
    await store.delete_project("vision", NOON)
    seen, left = await store.declarations()
    assert left == []
    with pytest.raises(UnknownProject):
        await store.put_declaration(declared("b", "vision"), seen, project_must_be_stored=True, event=EVENT)
    assert await store.declarations() == (seen, [])


async def test_a_change_that_has_not_seen_the_last_one_changes_nothing(store: Store) -> None:
    await put(store, declared("a"))
    before = await store.declarations()
    for seen in (0, 2):
        assert not await store.put_declaration(declared("b"), seen, event=EVENT)
        assert not await store.remove_declaration(declared("a"), seen, event=EVENT)
    assert not await store.remove_declaration(declared("c"), 1, event=EVENT)
    assert await store.declarations() == before
    assert await store.list_events(AuditFilter(), limit=10) == []


async def test_of_two_changes_at_once_one_is_first(store: Store) -> None:
    done = await asyncio.gather(*(store.put_declaration(declared(name), 0, event=EVENT) for name in "abc"))
    assert sorted(done) == [False, False, True]
    assert len((await store.declarations())[1]) == len(await store.list_events(AuditFilter(), limit=9)) == 1


async def test_a_number_is_never_used_again(store: Store, reopen: Reopen) -> None:
    await put(store, declared("a"))
    assert await store.remove_declaration(declared("a"), 1, event=EVENT)
    assert await store.declarations() == (2, [])
    again = await reopen()
    await put(again, declared("a"))
    assert [each.version for each in (await again.declarations())[1]] == [3]


async def test_there_are_no_more_than_the_limits_allow(store: Store) -> None:
    limits = DeclarationLimits(in_all=4, of_project=2)
    await put(store, declared("a", "vision"), declared("b", "vision", Kind.DATASET), declared("v"))
    with pytest.raises(TooManyDeclarations, match="2 algorithms, datasets and queues of project vision"):
        await store.put_declaration(declared("c", "vision"), 3, limits, event=EVENT)
    await put(store, declared("c", "v"))
    with pytest.raises(TooManyDeclarations, match=r"^4 algorithms, datasets and queues are declared"):
        await store.put_declaration(declared("d"), 4, limits, event=EVENT)
    assert await store.put_declaration(declared("a", "vision"), 4, limits), "it is not a new one"
    assert await store.list_events(AuditFilter(), limit=10) == []


async def test_a_deleted_project_takes_its_declarations_along(store: Store) -> None:
    await store.put_project(Project(name="vision"))
    await put(store, declared("a", "vision"), declared("b", "vision-2"), declared("vision"))
    assert await store.delete_project("vision", NOON) == 0
    number, left = await store.declarations()
    assert number > 3
    assert [(each.project, each.name) for each in left] == [("", "vision"), ("vision-2", "b")]
