"""The operations on algorithms and datasets. Roles and both stores: tests/integration/api/test_matrix.py."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from job_tracker.access.projects import Projects
from job_tracker.catalog import Dataset
from job_tracker.declarations.catalog import DeclaredCatalog, Files
from job_tracker.declarations.operations import Declarations
from job_tracker.declarations.reading import Reader
from job_tracker.domain.access import Project
from job_tracker.domain.audit import AuditEvent, Outcome
from job_tracker.domain.caller import BUILT_IN, Role
from job_tracker.domain.declaration import Kind
from job_tracker.domain.errors import Forbidden, InvalidField, NotPossible, UnknownReference
from job_tracker.store.audit import AuditFilter
from job_tracker.store.base import Store
from job_tracker.store.sqlite import SqliteStore
from tests.support.callers import caller_with
from tests.support.catalog import ALGORITHM, SETTINGS, algorithm_of

ADMIN, VIEWER = caller_with(Role.ADMIN), caller_with(Role.VIEWER)
TRAIN = json.dumps({"process": {"command": ["train"]}})
READER = Reader(
    algorithm_model=ALGORITHM, check_algorithm=SETTINGS().check_algorithm, dataset_uris=("/data",)
)
FILES = Files(
    {"File": algorithm_of(process={"command": ["a"]}), "built-in": algorithm_of(process={"command": ["b"]})},
    shipped={Kind.ALGORITHM: frozenset({"built-in"})},
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await SqliteStore.open(tmp_path / "jobs.db")
    await store.put_project(Project(name="vision"))
    await store.put_project(Project(name="speech"))
    yield store
    await store.close()


async def replica(store: Store, noted: list[AuditEvent] | None = None) -> Declarations:
    projects = Projects(store)
    await projects.load()
    catalog = DeclaredCatalog(store, READER, lambda: FILES)
    await catalog.refresh()
    return Declarations(store, catalog, projects, note=(noted if noted is not None else []).append)


async def test_each_change_has_a_version_and_an_event(store: Store) -> None:
    declarations = await replica(store)
    made = await declarations.set_algorithm(ADMIN, "own", "vision", TRAIN)
    changed = await declarations.set_algorithm(
        ADMIN, "own", "vision", json.dumps({"process": {"command": ["x"]}})
    )
    await declarations.remove_algorithm(ADMIN, "own", "vision")
    again = await declarations.set_algorithm(ADMIN, "own", "vision", TRAIN)
    assert [made.version, changed.version, again.version] == [1, 2, 4]
    assert (again.changed_by, again.project, again.definition) == ("ada", "vision", TRAIN.replace(" ", ""))
    events = await store.list_events(AuditFilter(), limit=10)
    assert [(e.action, e.outcome, e.project, e.target, e.detail) for e in reversed(events)] == [
        ("set_algorithm", Outcome.DONE, "vision", "algorithm own", "version 1"),
        ("set_algorithm", Outcome.DONE, "vision", "algorithm own", "version 2"),
        ("remove_algorithm", Outcome.DONE, "vision", "algorithm own", "version 2"),
        ("set_algorithm", Outcome.DONE, "vision", "algorithm own", "version 4"),
    ]


async def test_the_same_definition_again_is_no_change(store: Store) -> None:
    declarations = await replica(store)
    for text in (
        '{"dataset": false, "process": {"command": ["x"]}}',
        '{"process":{"command":["x"]},"dataset":false}',
    ):
        assert (await declarations.set_algorithm(BUILT_IN, "own", "", text)).version == 1
    assert len(await store.list_events(AuditFilter(), limit=10)) == 1


async def test_replicas_that_change_the_same_one_at_once_lose_nothing(store: Store) -> None:
    replicas = [await replica(store) for _ in range(3)]
    sent = [json.dumps({"process": {"command": [f"{number}"]}}, separators=(",", ":")) for number in range(3)]
    answers = await asyncio.gather(
        *(
            each.set_algorithm(BUILT_IN, name, "", text)
            for each, text in zip(replicas, sent, strict=True)
            for name in ("a", "b")
        )
    )
    assert [answer.definition for answer in answers] == [text for text in sent for _ in ("a", "b")]
    assert sorted(answer.version for answer in answers) == list(range(1, 7))
    number, stored = await store.declarations()
    assert number == 6
    assert [each.name for each in stored] == ["a", "b"]
    events = await store.list_events(AuditFilter(), limit=10)
    assert sorted(event.detail for event in events) == [f"version {n}" for n in range(1, 7)]


async def test_two_replicas_do_not_declare_names_that_differ_in_case(store: Store) -> None:
    one, other = await replica(store), await replica(store)
    done = await asyncio.gather(
        one.set_algorithm(BUILT_IN, "own", "", TRAIN),
        other.set_algorithm(ADMIN, "Own", "vision", TRAIN),
        return_exceptions=True,
    )
    assert [type(each) for each in done].count(NotPossible) == 1


@pytest.mark.parametrize(
    ("name", "project", "message"),
    [
        ("file", "vision", "algorithm File is declared in a file of the service"),
        ("built-in", "", "algorithm built-in is built in; use another name"),
        ("Everywhere", "vision", "algorithm everywhere is declared for all projects"),
        ("of-vision", "", "algorithm of-vision is declared in project vision"),
        ("OF-vision", "vision", "algorithm of-vision is declared in project vision"),
    ],
)
async def test_a_name_that_is_taken_is_refused_and_both_are_named(
    store: Store, name: str, project: str, message: str
) -> None:
    declarations = await replica(store)
    await declarations.set_algorithm(BUILT_IN, "everywhere", "", TRAIN)
    await declarations.set_algorithm(BUILT_IN, "of-vision", "vision", TRAIN)
    with pytest.raises(NotPossible, match=f"algorithm {name} cannot be declared: {message}"):
        await declarations.set_algorithm(BUILT_IN, name, project, TRAIN)
    assert await store.declarations_version() == 2


async def test_projects_do_not_know_of_each_other(store: Store) -> None:
    declarations = await replica(store)
    await declarations.set_algorithm(BUILT_IN, "own", "speech", TRAIN)
    await declarations.set_algorithm(ADMIN, "OWN", "vision", TRAIN)
    found = await declarations.list_algorithms(VIEWER, "vision")
    assert [each.name for each in found] == ["File", "OWN", "built-in"]
    assert [each.name for each in await declarations.list_algorithms(VIEWER, "", "OWN")] == ["OWN"]
    with pytest.raises(UnknownReference, match="algorithm 'own' doesn't exist") as caught:
        await declarations.list_algorithms(VIEWER, "vision", "own")
    assert "configured: File, OWN, built-in; to add one: `trainctl algorithm set FILE`" in str(caught.value)
    with pytest.raises(UnknownReference, match="algorithm 'own' is not declared"):
        await declarations.remove_algorithm(ADMIN, "own", "vision")


@pytest.mark.parametrize("name", ["", "a b", "a/b", "-a", "a" * 65, "é", "program", "Program", "a\n", "*"])
async def test_a_name_that_is_not_allowed_is_refused(store: Store, name: str) -> None:
    with pytest.raises(InvalidField, match=r"^name: .* is not allowed"):
        await (await replica(store)).set_algorithm(BUILT_IN, name, "", TRAIN)


async def test_the_message_about_a_name_says_what_is_wrong_with_this_one(store: Store) -> None:
    declarations = await replica(store)
    with pytest.raises(InvalidField, match="'Program' is not allowed: it stands for uploaded programs"):
        await declarations.set_algorithm(BUILT_IN, "Program", "", TRAIN)
    with pytest.raises(InvalidField, match=r"do not put two dots in a row$"):
        await declarations.set_dataset(BUILT_IN, "a/b", "", json.dumps({"uri": "/data/x"}))


async def test_the_entry_for_all_datasets_is_shown_for_a_dataset_without_an_entry(store: Store) -> None:
    files = Files(datasets={"*": Dataset(uri="/data/{dataset_id}"), "faces": Dataset(uri="/faces")})
    catalog = DeclaredCatalog(store, READER, lambda: files)
    await catalog.refresh()
    declarations = Declarations(store, catalog, Projects(store))
    for name, shown in (("1", "*"), ("faces", "faces"), ("*", "*")):
        assert [each.name for each in await declarations.list_datasets(BUILT_IN, "", name)] == [shown]


async def test_what_a_project_declared_can_be_removed_after_the_project(store: Store) -> None:
    await (await replica(store)).set_algorithm(ADMIN, "own", "vision", TRAIN)
    without = Projects(store)  # the replica has loaded no entry, as if the project had been in a file
    declarations = Declarations(store, DeclaredCatalog(store, READER, lambda: FILES), without)
    with pytest.raises(UnknownReference, match="project: 'vision' doesn't exist"):
        await declarations.set_algorithm(BUILT_IN, "own", "vision", TRAIN)
    with pytest.raises(NotPossible, match="own is declared in project vision"):
        await declarations.set_algorithm(BUILT_IN, "own", "", TRAIN)
    await declarations.remove_algorithm(BUILT_IN, "own", "vision")
    assert (await declarations.set_algorithm(BUILT_IN, "own", "", TRAIN)).project == ""


@pytest.mark.parametrize("name", ["*", "a/b", "..", "a..b", ""])
async def test_an_id_of_a_dataset_that_is_not_allowed_is_refused(store: Store, name: str) -> None:
    with pytest.raises(InvalidField, match=r"^name: .* is not allowed"):
        await (await replica(store)).set_dataset(BUILT_IN, name, "", json.dumps({"uri": "/data/x"}))


async def test_entries_of_files_are_not_removed(store: Store) -> None:
    declarations = await replica(store)
    with pytest.raises(NotPossible, match="algorithm File is declared in a file of the service"):
        await declarations.remove_algorithm(BUILT_IN, "File", "")
    with pytest.raises(NotPossible, match=r"algorithm built-in is built in, and cannot be removed"):
        await declarations.remove_algorithm(BUILT_IN, "built-in", "")


async def test_what_is_refused_is_noted_and_changes_nothing(store: Store) -> None:
    noted: list[AuditEvent] = []
    declarations = await replica(store, noted)
    for caller, project in ((ADMIN, ""), (ADMIN, "speech"), (VIEWER, "vision")):
        with pytest.raises(Forbidden):
            await declarations.set_algorithm(caller, "own", project, TRAIN)
        with pytest.raises(Forbidden):
            await declarations.remove_dataset(caller, "own", project)
    assert [event.action for event in noted] == ["set_algorithm", "remove_dataset"] * 3
    with pytest.raises(UnknownReference, match="project: 'none' doesn't exist"):
        await declarations.set_algorithm(BUILT_IN, "own", "none", TRAIN)
    with pytest.raises(InvalidField, match=r"definition\.check"):
        await declarations.set_algorithm(ADMIN, "own", "vision", '{"check": ["x"]}')
    assert await store.declarations() == (0, [])
