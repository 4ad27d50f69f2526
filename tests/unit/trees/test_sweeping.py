"""Trees of jobs that have not ended are never removed, unused ones after a time."""

import os
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from job_tracker.domain.errors import StoreUnavailable
from job_tracker.domain.job import Ending, Job, JobState
from job_tracker.domain.job_spec import Program
from job_tracker.store.sqlite import SqliteStore
from job_tracker.trees.store import TreeStore
from job_tracker.trees.sweeping import TreeSweeper
from tests.support.jobs import NOON, spec
from tests.support.trees import put

WEEK = timedelta(days=7)


@pytest.fixture
async def jobs(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "jobs.db")
    yield store
    await store.close()


@pytest.fixture
def trees(tmp_path: Path) -> TreeStore:
    return TreeStore(tmp_path / "programs")


def aged(trees: TreeStore, project: str, content: str) -> str:
    """Put a tree that was last used eight days ago."""
    tree = put(trees.of(project), {"train.py": content.encode()})
    long_ago = time.time() - 8 * 24 * 3600
    os.utime(trees.of(project).blobs.parent.path / "trees" / tree, (long_ago, long_ago))
    return tree


async def job(jobs: SqliteStore, tree: str, project: str = "vision") -> Job:
    return await jobs.submit(spec(project=project, program=Program(tree=tree)), NOON, None, 100)


async def test_only_trees_of_jobs_that_have_not_ended_stay(jobs: SqliteStore, trees: TreeStore) -> None:
    queued, running, ended, unused, elsewhere = (aged(trees, "vision", name) for name in "abcde")
    assert aged(trees, "speech", "e") == elsewhere
    await job(jobs, queued)
    await jobs.submit(spec(), NOON, None, 100)  # without a program
    launched = await jobs.update((await job(jobs, running)).admitted(NOON))
    await jobs.update(launched.running(NOON))
    await jobs.update((await job(jobs, ended)).ended(Ending(JobState.CANCELLED, NOON), NOON))
    await job(jobs, elsewhere, "speech")
    await TreeSweeper(jobs, trees, WEEK).sweep()
    of_vision = {tree for tree in (queued, running, ended, unused, elsewhere) if known(trees, "vision", tree)}
    assert of_vision == {queued, running}
    assert known(trees, "speech", elsewhere)


def known(trees: TreeStore, project: str, tree: str) -> bool:
    return trees.of(project).find(tree).is_complete


async def test_a_tree_is_kept_for_a_time_after_its_job_has_ended(jobs: SqliteStore, trees: TreeStore) -> None:
    tree = aged(trees, "vision", "a")
    queued = await job(jobs, tree)
    sweeper = TreeSweeper(jobs, trees, WEEK)
    await sweeper.sweep()
    await jobs.update(queued.ended(Ending(JobState.CANCELLED, NOON), NOON))
    await sweeper.sweep()
    assert known(trees, "vision", tree)


async def test_nothing_is_removed_if_the_jobs_cannot_be_read(
    jobs: SqliteStore, trees: TreeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = aged(trees, "vision", "a")

    async def fail(*_: object, **__: object) -> None:
        raise StoreUnavailable("gone")

    monkeypatch.setattr(jobs, "list_jobs", fail)
    with pytest.raises(StoreUnavailable):
        await TreeSweeper(jobs, trees, WEEK).sweep()
    assert known(trees, "vision", tree)


async def test_the_jobs_of_a_long_queue_are_all_read(
    jobs: SqliteStore, trees: TreeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("job_tracker.trees.sweeping._PAGE", 2)
    used = [aged(trees, "vision", str(number)) for number in range(5)]
    for tree in used:
        await job(jobs, tree)
    await TreeSweeper(jobs, trees, WEEK).sweep()
    assert all(known(trees, "vision", tree) for tree in used)


async def test_a_service_without_trees_reads_no_jobs(
    jobs: SqliteStore, trees: TreeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(SqliteStore, "list_jobs")
    await TreeSweeper(jobs, trees, WEEK).sweep()
