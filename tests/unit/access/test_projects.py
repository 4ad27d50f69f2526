"""Projects that files or the API declare."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from job_tracker.access.projects import Projects
from job_tracker.domain.access import Project
from job_tracker.domain.audit import AuditEvent, Outcome
from job_tracker.domain.caller import Role
from job_tracker.domain.policies import ProjectLimits
from job_tracker.store.base import Store
from job_tracker.store.sqlite import SqliteStore


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await SqliteStore.open(tmp_path / "jobs.db")
    yield store
    await store.close()


async def test_the_project_default_always_exists(store: Store) -> None:
    projects = Projects(store)
    assert projects.limits_of("default") == ProjectLimits()
    await projects.load()
    assert [*projects.names()] == ["default"]
    assert projects.limits_of("vision") is None


async def test_default_may_be_declared(store: Store) -> None:
    await store.put_project(Project(name="default", members={"alice": Role.VIEWER}))
    projects = Projects(store)
    await projects.load()
    assert projects.roles_of("alice") == {"default": Role.VIEWER}


async def test_a_project_of_a_file_hides_one_of_the_api(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    limits = ProjectLimits(max_queued=3)
    await store.put_project(Project(name="vision", members={"alice": Role.ADMIN}))
    declared = {"vision": Project(name="vision", members={"bob": Role.VIEWER}, limits=limits)}
    projects = Projects(store, lambda: declared)
    await projects.load()
    assert (projects.roles_of("alice"), projects.roles_of("bob")) == ({}, {"vision": Role.VIEWER})
    assert (projects.limits_of("vision"), projects.is_declared("vision")) == (limits, True)
    await store.put_project(Project(name="speech"))
    await projects.load()
    names = ("vision", "speech", "default", "unknown")
    assert [projects.is_deletable(name) for name in names] == [False, True, False, False]
    assert "project vision is declared in a file and through the API; the file is used" in caplog.text


async def test_changes_of_a_file_are_events(store: Store) -> None:
    noted: list[AuditEvent] = []
    vision = Project(name="vision", members={"alice": Role.ADMIN})
    first = {"vision": vision, "speech": Project(name="speech"), "same": Project(name="same")}
    declared = [first]
    projects = Projects(store, note=noted.append)
    await projects.load()
    await projects.declare(lambda: declared[0], "auth.projects_file /etc/projects.toml")
    await projects.load()
    assert noted == [], "neither the start nor loading again is noted"
    declared[0] = {
        "vision": replace(vision, members={"alice": Role.VIEWER}),
        "new": Project(name="new"),
        "same": Project(name="same"),
    }
    await projects.load()
    await projects.load()
    assert [(each.action, each.target) for each in noted] == [
        ("set_project", "project new"),
        ("delete_project", "project speech"),
        ("set_project", "project vision"),
    ]
    assert {(each.caller, each.means, each.outcome, each.detail) for each in noted} == {
        ("file", "file", Outcome.DONE, "auth.projects_file /etc/projects.toml")
    }
    assert [each.project for each in noted] == ["new", "speech", "vision"]


async def test_a_project_that_is_gone_is_logged(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    declared = [{"vision": Project(name="vision")}, {}]
    projects = Projects(store, lambda: declared[0])
    await projects.load()
    unchanged = projects.have_changed
    del declared[0]
    assert (unchanged, projects.have_changed) == (False, True)
    await projects.load()
    assert (
        "project vision no longer exists; its jobs continue, and only operators may see them" in caplog.text
    )
    assert projects.get("vision") is None
