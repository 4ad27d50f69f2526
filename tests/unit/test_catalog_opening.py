"""The catalog as the settings want it, and the file of the settings, which is watched."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from job_tracker.access.projects import Projects
from job_tracker.catalog import Origin
from job_tracker.domain.caller import BUILT_IN
from job_tracker.domain.job import Ending, JobState
from job_tracker.store.base import Store
from job_tracker.store.sqlite import SqliteStore
from tests.support.catalog import SETTINGS
from tests.support.jobs import NOON, spec
from tests.support.patience import PATIENCE
from training_service.auth import live
from training_service.auth.live import Unusable
from training_service.catalog_opening import ConfigurationFile, OpenedCatalog, open_catalog, reader_of
from training_service.settings import Settings
from training_service.settings.loading import load

OWN = '[algorithms.own.process]\ncommand = ["train"]\n'
OTHER = '[algorithms.other.process]\ncommand = ["train"]\n'
TRAIN = json.dumps({"process": {"command": ["x"]}})


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await SqliteStore.open(tmp_path / "jobs.db")
    yield store
    await store.close()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConfigurationFile:
    """The file of a configuration, which the service checks each time."""
    without_pause = partial(live.Live, check_seconds=0)
    monkeypatch.setattr("training_service.catalog_opening.Live", without_pause)
    path = tmp_path / "my.toml"
    path.write_text(OWN)
    return ConfigurationFile(path, partial(load, path))


def change(file: ConfigurationFile, content: str) -> None:
    new = file.path.with_suffix(".new")
    new.write_text(content)
    new.rename(file.path)


async def opened(store: Store, file: ConfigurationFile, settings: Settings | None = None) -> OpenedCatalog:
    return await open_catalog(settings or file.load(), store, Projects(store), file=file)


def names(found: OpenedCatalog) -> set[str]:
    return {
        name for name, entry in found.catalog.algorithms("").items() if entry.origin is not Origin.SHIPPED
    }


async def test_a_changed_file_counts_without_a_restart(store: Store, file: ConfigurationFile) -> None:
    catalog = await opened(store, file)
    assert names(catalog) == {"own"}
    assert catalog.catalog.algorithms("")["language-model"].origin is Origin.SHIPPED
    change(file, OTHER + '[datasets.mine]\nuri = "/data/{version}"\n')
    await catalog.catalog.refresh()
    assert names(catalog) == {"other"}
    assert catalog.catalog.datasets("")["mine"].origin is Origin.FILE


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (OTHER + "[", "not valid TOML"),
        (f"x = {'[' * 3000}{']' * 3000}", "not valid TOML (nested too deeply)"),
        (OTHER + '[algorithms.bad]\ncolour = "red"\n', "algorithms.bad.colour: unknown name"),
        (OTHER + '[algorithms.bad.process]\ncommand = ["a", "{X}"]\n', "process.command: argument 1"),
        (OTHER + "[scheduling]\ncapacity = -1\n", "scheduling.capacity"),
    ],
)
async def test_a_broken_change_is_refused_as_a_whole_and_logged(
    store: Store, file: ConfigurationFile, caplog: pytest.LogCaptureFixture, content: str, reason: str
) -> None:
    catalog = await opened(store, file)
    change(file, content)
    for _ in range(2):
        await catalog.catalog.refresh()
    assert names(catalog) == {"own"}
    [record] = [each for each in caplog.records if each.levelname == "ERROR"]
    assert reason in record.getMessage()
    assert "the previous content stays in use" in record.getMessage()
    change(file, OWN + OTHER)
    await catalog.catalog.refresh()
    assert names(catalog) == {"own", "other"}


async def test_a_configuration_from_a_pipe_stays_as_it_was_read(store: Store) -> None:
    reader, writer = os.pipe()
    try:
        os.write(writer, OWN.encode())
        os.close(writer)
        path = Path(f"/dev/fd/{reader}")
        catalog = await opened(store, ConfigurationFile(path, partial(load, path)))
    finally:
        os.close(reader)
    await catalog.catalog.refresh()
    assert names(catalog) == {"own"}


async def test_a_file_that_became_a_pipe_is_refused(
    store: Store, file: ConfigurationFile, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = await opened(store, file)
    file.path.unlink()
    os.mkfifo(file.path)
    async with asyncio.timeout(PATIENCE):
        for _ in range(2):  # a file that is being replaced may look like this for a moment
            await catalog.catalog.refresh()
    assert names(catalog) == {"own"}
    assert "my.toml: it is not a regular file; the previous content stays in use" in caplog.text


async def test_a_file_cannot_take_a_name_of_the_api(
    store: Store, file: ConfigurationFile, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = await opened(store, file)
    await catalog.operations.set_algorithm(BUILT_IN, "Other", "", TRAIN)
    change(file, OTHER)
    for _ in range(2):
        await catalog.catalog.refresh()
    both = "algorithms.other: algorithm Other was declared through the API, too. Remove other from"
    assert both in caplog.text
    assert names(catalog) == {"own", "Other"}
    with pytest.raises(Unusable, match="algorithm Other was declared through the API, too"):
        await opened(store, file)
    await catalog.operations.remove_algorithm(BUILT_IN, "Other", "")
    await catalog.catalog.refresh()
    assert names(catalog) == {"other"}


@pytest.mark.parametrize(
    ("values", "takes"),
    [
        ({}, True),
        ({"server": {"address": "0.0.0.0:1", "insecure": True}}, False),
        ({"programs": {"enabled": False}}, False),
        ({"programs": {"enabled": False}, "catalog": {"declared_algorithms": True}}, True),
        ({"catalog": {"declared_algorithms": False}}, False),
    ],
)
def test_algorithms_are_taken_where_uploaded_programs_are(values: dict[str, object], takes: bool) -> None:
    assert (not reader_of(SETTINGS(**values)).refusal) is takes


def test_datasets_are_in_the_storage_or_where_the_settings_allow() -> None:
    reader = reader_of(SETTINGS(storage={"uri": "s3://a"}, catalog={"dataset_uris": ["s3://b/x"]}))
    assert reader.dataset_uris == ("s3://a/versionedDatasets", "s3://b/x")
    assert replace(reader, refusal="").dataset('{"uri": "s3://b/x/{version}"}').uri == "s3://b/x/{version}"


QUEUES = '[scheduling.queues.top]\n[scheduling.queues.own]\nparent = "top"\nweight = 2\n'


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            '[scheduling.queues.top]\nparent = "own"\n[scheduling.queues.own]\nparent = "top"\n',
            "scheduling.queues.top.parent: 'own' is not allowed: the parents form a cycle",
        ),
        ("[scheduling.queues.own]\nweight = -1\n", "scheduling.queues.own.weight: -1 is not allowed"),
        (
            '[scheduling.queues.own]\nquotas.h100 = {nominal = {instances = "1"}}\n',
            "scheduling.queues.own.quotas.h100: there is no such flavor; allowed: default",
        ),
        (
            '[scheduling.queues.own]\nquotas.default = {nominal = {instances = "9"}}\n',
            "at most 8 is allowed",
        ),
        ("[scheduling.queues.own\n", "not valid TOML"),
    ],
)
async def test_a_file_with_a_bad_tree_is_shown_as_a_problem_and_the_tree_from_before_stays(
    store: Store, file: ConfigurationFile, caplog: pytest.LogCaptureFixture, content: str, reason: str
) -> None:
    change(file, QUEUES)
    found = await opened(store, file)
    before = found.catalog.tree
    assert (before.queues["own"].weight, found.catalog.problem) == (2, "")
    change(file, content)
    for _ in range(2):
        await found.catalog.refresh()
    assert found.catalog.tree is before
    assert reason in found.catalog.problem
    [record] = [each for each in caplog.records if each.levelname == "ERROR"]
    assert reason in record.getMessage()
    change(file, QUEUES.replace("2", "3"))
    await found.catalog.refresh()
    assert (found.catalog.tree.queues["own"].weight, found.catalog.problem) == (3, "")


async def test_a_file_without_a_queue_that_has_jobs_is_shown_as_a_problem(
    store: Store,
    file: ConfigurationFile,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("job_tracker.declarations.catalog._RETRY_SECONDS", 0.0)
    monkeypatch.setattr("job_tracker.declarations.catalog.CHECK_SECONDS", 0.001)
    caplog.set_level("INFO")
    change(file, QUEUES)
    found = await opened(store, file)
    job = await store.submit(spec(queue="own"), NOON, None, 10)
    change(file, "")
    await found.catalog.refresh()
    assert found.catalog.problem == (
        "scheduling.queues: own cannot be removed or become a parent while jobs wait or run there"
    )
    assert "own" in found.catalog.tree.queues
    is_used = asyncio.Event()
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
        with found.catalog.calling(is_used.set):
            follower = tasks.create_task(found.catalog.follow())
            await store.update(job.ended(Ending(JobState.CANCELLED, NOON), NOON))
            await is_used.wait()
            follower.cancel()
    assert (found.catalog.problem, set(found.catalog.tree.queues)) == ("", {"default"})
    said = [each.getMessage() for each in caplog.records if each.name.endswith(("catalog", "live"))]
    assert said == [
        "scheduling.queues: own cannot be removed or become a parent while jobs wait or run there; the "
        "previous content stays in use until these jobs have ended",
        "the catalog uses the changed files",
    ]


async def test_a_queue_of_a_file_for_a_project_that_does_not_exist_is_named_once(
    store: Store, file: ConfigurationFile, caplog: pytest.LogCaptureFixture
) -> None:
    change(file, '[scheduling.queues.own]\nprojects = ["default", "visoin"]\n')
    found = await opened(store, file)
    change(file, '[scheduling.queues.own]\nprojects = ["default", "visoin"]\nweight = 2\n')
    await found.catalog.refresh()
    assert found.catalog.tree.queues["own"].weight == 2
    said = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert said == ["queue own lists project visoin, which doesn't exist"]
