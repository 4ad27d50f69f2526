"""The catalog of a running service."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from job_tracker.catalog import Dataset, Origin
from job_tracker.declarations.catalog import DeclaredCatalog, Files
from job_tracker.declarations.reading import Reader
from job_tracker.domain.declaration import Declaration, Kind
from job_tracker.scheduling.recipes import QueueRecipe
from job_tracker.store.base import Store
from job_tracker.store.sqlite import SqliteStore
from tests.support.catalog import ALGORITHM, SETTINGS, algorithm_of
from tests.support.jobs import NOON

TRAIN = algorithm_of(process={"command": ["train"]})
BUILT_IN = {Kind.ALGORITHM: frozenset({"built-in"})}
READER = Reader(
    algorithm_model=ALGORITHM, check_algorithm=SETTINGS().check_algorithm, dataset_uris=("/data",)
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await SqliteStore.open(tmp_path / "jobs.db")
    yield store
    await store.close()


async def put(store: Store, name: str, project: str = "", image: str = "") -> None:
    values = {"process": {"command": ["train"]}, **({"docker": {"image": image}} if image else {})}
    declaration = Declaration(
        kind=Kind.ALGORITHM, name=name, project=project, definition=json.dumps(values), changed_at=NOON
    )
    assert await store.put_declaration(declaration, await store.declarations_version())


async def test_a_project_has_its_own_entries_and_those_of_all(store: Store) -> None:
    catalog = DeclaredCatalog(store, READER, lambda: Files({"file": TRAIN}))
    await put(store, "global")
    await put(store, "own", "vision")
    await catalog.refresh()
    assert sorted(catalog.algorithms("vision")) == ["file", "global", "own"]
    assert sorted(catalog.algorithms("speech")) == sorted(catalog.algorithms("")) == ["file", "global"]
    own = catalog.algorithms("vision")["own"]
    assert (own.origin, own.project, own.version, own.value) == (Origin.API, "vision", 2, TRAIN)


async def test_entries_are_the_same_objects_until_they_change(store: Store) -> None:
    files = Files({"file": TRAIN})
    catalog = DeclaredCatalog(store, READER, lambda: files)
    await put(store, "a")
    await put(store, "b")
    await catalog.refresh()
    before = dict(catalog.algorithms(""))
    await put(store, "b")
    files = Files({"file": algorithm_of(process={"command": ["train"]})}, {"d": Dataset(uri="/d")})
    await catalog.refresh()
    after = catalog.algorithms("")
    assert [after[name] is before[name] for name in ("a", "b", "file")] == [True, False, True]
    assert sorted(catalog.datasets("")) == ["d"]


async def test_a_change_of_one_dataset_reads_no_other(store: Store) -> None:
    read: list[str] = []

    class Counting(Reader):
        def dataset(self, definition: str) -> Dataset:
            read.append(json.loads(definition)["uri"])
            return Reader.dataset(self, definition)

    async def declare(name: str, uri: str) -> None:
        made = Declaration(kind=Kind.DATASET, name=name, definition=json.dumps({"uri": uri}), changed_at=NOON)
        assert await store.put_declaration(made, await store.declarations_version())
        await catalog.refresh()

    catalog = DeclaredCatalog(
        store, Counting(algorithm_model=ALGORITHM, check_algorithm=print, dataset_uris=("/data",))
    )
    await declare("a", "/data/a")
    await declare("b", "/elsewhere")
    before = dict(catalog.datasets(""))
    await declare("c", "/data/c")
    assert read == ["/data/a", "/elsewhere", "/data/c"]
    after = catalog.datasets("")
    assert [after[name] is before[name] for name in ("a", "b")] == [True, True]
    assert "dataset_uris" in after["b"].problem


async def test_a_name_in_a_file_hides_that_of_the_api_and_both_are_named(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    await put(store, "both", "vision")
    await put(store, "built-in")
    files = Files({"both": TRAIN, "built-in": TRAIN}, shipped=BUILT_IN)
    catalog = DeclaredCatalog(store, READER, lambda: files)
    await catalog.refresh()
    assert catalog.algorithms("vision")["both"].origin is Origin.FILE
    assert "algorithm both is declared in a file and through the API in project vision" in caplog.text
    assert "`trainctl --project vision algorithm rm both`" in caplog.text
    assert catalog.algorithms("vision")["built-in"].origin is Origin.API, "a new built-in one hides nothing"


async def test_an_entry_that_became_impossible_says_why(store: Store) -> None:
    await put(store, "a")
    catalog = DeclaredCatalog(store, replace(READER, refusal="no code of callers"))
    await catalog.refresh()
    entry = catalog.algorithms("")["a"]
    assert (entry.value, entry.problem) == (None, "no code of callers")
    catalog = DeclaredCatalog(store, READER)
    await catalog.refresh()
    assert catalog.algorithms("")["a"].value == TRAIN


async def test_an_image_of_a_project_goes_with_the_algorithm_that_allowed_it(store: Store) -> None:
    await put(store, "by-operator", image="a:1")
    await put(store, "own", "vision", image="a:1")
    catalog = DeclaredCatalog(store, READER)
    await catalog.refresh()
    assert catalog.algorithms("vision")["own"].value is not None
    await put(store, "by-operator", image="a:2")
    await catalog.refresh()
    assert "'a:1' is not allowed in a project" in catalog.algorithms("vision")["own"].problem


async def test_files_and_store_are_read_only_when_they_changed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = DeclaredCatalog(store, READER)
    await put(store, "a")
    await catalog.refresh()
    monkeypatch.setattr(SqliteStore, "declarations", None)
    await catalog.refresh()
    assert sorted(catalog.algorithms("")) == ["a"]


async def test_a_change_of_the_queues_calls_back_once_they_count(store: Store) -> None:
    files = Files()
    catalog = DeclaredCatalog(store, READER, lambda: files)
    await catalog.refresh()
    seen: list[frozenset[str]] = []
    with catalog.calling(lambda: seen.append(catalog.tree.leaves)):
        files = Files(queues={"a": QueueRecipe()})
        await catalog.refresh()
        await put(store, "an-algorithm")
        await catalog.refresh()
    files = Files()
    await catalog.refresh()
    assert seen == [{"default", "a"}]
