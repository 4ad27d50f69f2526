"""Queues that are declared by the API, together with those of files."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from job_tracker.access.projects import Projects
from job_tracker.catalog import Origin
from job_tracker.declarations.catalog import DeclaredCatalog, Files
from job_tracker.declarations.operations import Declarations
from job_tracker.declarations.reading import Reader
from job_tracker.domain.access import Project
from job_tracker.domain.caller import BUILT_IN, Role
from job_tracker.domain.errors import Forbidden, InvalidField, NotPossible, UnknownReference
from job_tracker.scheduling.recipes import QueueRecipe
from job_tracker.scheduling.tree import pool_of
from job_tracker.store.base import Store
from job_tracker.store.sqlite import SqliteStore
from tests.support.callers import caller_with
from tests.support.catalog import ALGORITHM, SETTINGS

READER = Reader(algorithm_model=ALGORITHM, check_algorithm=SETTINGS().check_algorithm)
VIEWER = caller_with(Role.VIEWER)
POOL = pool_of({}, 8)


def files_with(**queues: dict[str, Any]) -> Files:
    recipes = {name: QueueRecipe.model_validate(table) for name, table in queues.items()}
    return Files(queues=recipes, pool=POOL)


def guaranteed(instances: int, **more: Any) -> str:
    return json.dumps({"quotas": {"default": {"nominal": {"instances": instances}}}, **more})


class Service:
    """A replica. A test changes its files, and says which queues have jobs."""

    def __init__(self, store: Store) -> None:
        self.files = files_with()
        self.busy: set[str] = set()
        self.catalog = DeclaredCatalog(store, READER, lambda: self.files, self.occupied)
        self.projects = Projects(store, lambda: {"speech": Project(name="speech")})
        self.operations = Declarations(store, self.catalog, self.projects, occupied=self.occupied)

    async def occupied(self, names: Collection[str]) -> Collection[str]:
        return self.busy & set(names)

    async def set(self, name: str, definition: str = "{}") -> None:
        await self.operations.set_queue(BUILT_IN, name, definition)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await SqliteStore.open(tmp_path / "jobs.db")
    yield store
    await store.close()


@pytest.fixture
async def service(store: Store) -> Service:
    made = Service(store)
    await made.catalog.refresh()
    return made


async def test_a_declared_queue_counts_at_once_and_in_other_replicas(store: Store, service: Service) -> None:
    other = Service(store)
    before = service.catalog.tree
    await service.set("research", json.dumps({"weight": 3}))
    assert service.catalog.tree is not before
    assert service.catalog.tree.queues["research"].weight == 3
    await other.catalog.refresh()
    assert other.catalog.tree == service.catalog.tree
    await other.operations.remove_queue(BUILT_IN, "research")
    assert other.catalog.tree.queues.keys() == {"default"}


async def test_the_tree_stays_the_same_object_until_a_queue_changes(service: Service) -> None:
    before = service.catalog.tree
    await service.catalog.refresh()
    assert service.catalog.tree is before


@pytest.mark.parametrize(
    ("definition", "field", "reason"),
    [
        ('{"parent": "gone"}', "definition.parent", "'gone' doesn't exist"),
        ('{"parent": "own"}', "definition.parent", "cycle"),
        ('{"weight": -1}', "definition.weight", "greater than 0"),
        ('{"wheels": 1}', "definition.wheels", "unknown name"),
        ('{"max_priority": "top"}', "definition.max_priority", "allowed: high, low, normal"),
        (guaranteed(9), "definition.quotas.default.nominal.instances", "at most 8 is allowed"),
    ],
)
async def test_a_queue_that_does_not_fit_is_refused_with_the_field(
    service: Service, definition: str, field: str, reason: str
) -> None:
    with pytest.raises(InvalidField, match=reason) as refused:
        await service.set("own", definition)
    assert refused.value.field == field
    assert service.catalog.tree.queues.keys() == {"default"}


async def test_two_replicas_cannot_declare_more_than_the_capacity_together(
    store: Store, service: Service
) -> None:
    other = Service(store)
    results = await asyncio.gather(
        service.set("a", guaranteed(5)), other.set("b", guaranteed(5)), return_exceptions=True
    )
    assert sorted(type(each).__name__ for each in results) == ["InvalidField", "NoneType"]


async def test_a_parent_cannot_get_less_than_its_queues_are_guaranteed(service: Service) -> None:
    await service.set("top", guaranteed(6))
    await service.set("child", guaranteed(5, parent="top"))
    with pytest.raises(InvalidField, match="child and the queues below are guaranteed 5 in all; at most 4"):
        await service.set("top", guaranteed(4))


async def test_a_name_of_a_file_is_refused(service: Service) -> None:
    service.files = files_with(research={})
    with pytest.raises(NotPossible, match="queue research is declared in a file of the service"):
        await service.set("research")
    with pytest.raises(NotPossible, match="remove it there"):
        await service.operations.remove_queue(BUILT_IN, "research")


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a" * 41, "a/b"])
async def test_a_name_that_is_not_allowed_is_refused(service: Service, name: str) -> None:
    with pytest.raises(InvalidField, match="lower-case letters"):
        await service.set(name)


async def test_a_queue_with_jobs_or_with_queues_is_not_removed(service: Service) -> None:
    await service.set("top")
    await service.set("child", '{"parent": "top"}')
    with pytest.raises(NotPossible, match=r"queue top cannot be removed: child\.parent: 'top' doesn't exist"):
        await service.operations.remove_queue(BUILT_IN, "top")
    service.busy = {"child"}
    with pytest.raises(NotPossible, match="queue child cannot be removed while jobs wait or run there"):
        await service.operations.remove_queue(BUILT_IN, "child")
    service.busy = set()
    await service.operations.remove_queue(BUILT_IN, "child")
    await service.operations.remove_queue(BUILT_IN, "top")


async def test_a_queue_with_jobs_does_not_become_a_parent(service: Service) -> None:
    await service.set("top")
    service.busy = {"top"}
    with pytest.raises(NotPossible, match="queue top cannot be the parent of child while jobs wait"):
        await service.set("child", '{"parent": "top"}')


async def test_only_operators_declare_queues(service: Service) -> None:
    admin = caller_with(Role.ADMIN)
    with pytest.raises(Forbidden, match="only an operator may declare queues"):
        await service.operations.set_queue(admin, "own", "{}")
    with pytest.raises(Forbidden, match="only an operator may remove queues"):
        await service.operations.remove_queue(admin, "own")


async def test_a_project_sees_its_queues_with_their_parents_and_an_operator_all(service: Service) -> None:
    service.files = files_with(teams={}, vision={"parent": "teams", "projects": ["vision"]})
    await service.projects.load()
    await service.set("speech", '{"projects": ["speech"]}')
    listed = await service.operations.list_queues(VIEWER, "vision")
    assert [(each.entry.name, each.takes_jobs, each.is_default) for each in listed] == [
        ("default", True, False),
        ("teams", False, False),
        ("vision", True, True),
    ]
    every = await service.operations.list_queues(BUILT_IN, "")
    assert [(each.entry.name, each.entry.origin) for each in every] == [
        ("default", Origin.SHIPPED),
        ("speech", Origin.API),
        ("teams", Origin.FILE),
        ("vision", Origin.FILE),
    ]
    with pytest.raises(UnknownReference, match="queue 'speech' doesn't exist"):
        await service.operations.list_queues(VIEWER, "vision", "speech")


async def test_a_changed_file_counts_without_a_restart(service: Service) -> None:
    service.files = files_with(a={"weight": 2})
    await service.catalog.refresh()
    assert service.catalog.tree.queues["a"].weight == 2
    service.files = replace(service.files, pool=pool_of({}, 4))
    await service.catalog.refresh()
    assert service.catalog.tree.pool.flavors[0].capacity == {"instances": 4}


async def test_a_file_that_leaves_out_a_queue_with_jobs_waits_until_they_have_ended(
    service: Service, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("job_tracker.declarations.catalog._RETRY_SECONDS", 0.0)
    service.files = files_with(a={"weight": 2})
    await service.catalog.refresh()
    service.busy, service.files = {"a"}, files_with(b={})
    with caplog.at_level(logging.ERROR):
        await service.catalog.refresh()
        await service.catalog.refresh()
    assert service.catalog.tree.queues.keys() == {"a", "default"}
    assert len(caplog.records) == 1
    assert "scheduling.queues: a cannot be removed or become a parent while jobs" in caplog.text
    service.busy = set()
    await service.catalog.refresh()
    assert service.catalog.tree.queues.keys() == {"b", "default"}


async def test_a_queue_that_a_changed_capacity_made_impossible_takes_no_jobs(service: Service) -> None:
    await service.set("own", guaranteed(8))
    service.files = Files(pool=pool_of({}, 4))
    await service.catalog.refresh()
    assert service.catalog.tree.problems.keys() == {"own"}
    [_, own] = await service.operations.list_queues(BUILT_IN, "")
    assert "at most 4 is allowed" in own.entry.problem
    assert not own.takes_jobs
    await service.operations.remove_queue(BUILT_IN, "own")
    assert not service.catalog.tree.problems


async def test_a_queue_for_a_project_that_does_not_exist_is_refused(service: Service) -> None:
    with pytest.raises(
        InvalidField, match=r"^definition\.projects: 'visoin' doesn't exist; allowed: default$"
    ):
        await service.set("own", json.dumps({"projects": ["default", "visoin"]}))
    await service.set("own", json.dumps({"projects": ["default"]}))
