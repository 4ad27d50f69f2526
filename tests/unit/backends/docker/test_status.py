"""Parsing of containers, and the states of ranks."""

from dataclasses import replace
from typing import Any

import pytest

from job_tracker.backends.docker.containers import Container, inspected, listed
from job_tracker.backends.docker.groups import Groups
from job_tracker.backends.docker.status import observe_rank
from job_tracker.backends.shared.labels import group_annotations, group_labels, rank_labels
from job_tracker.domain.diagnosis import Category
from job_tracker.domain.group import Phase
from tests.support.jobs import NOON, job

LABELS = {**group_labels(job(), "test"), **group_annotations(job(instances=2)), **rank_labels(0, "master")}
RUNNING = Container(
    id="a",
    name="program-1-master",
    labels=LABELS,
    status="running",
    program="image (sha256:1)",
    created_at=NOON.timestamp(),
)


def ended(code: int, **more: Any) -> Container:
    return replace(RUNNING, status="exited", exit_code=code, ended_at=NOON.timestamp(), **more)


def phase(container: Container | None, **how: bool) -> Phase:
    arguments = {"launching": False, "stopping": False, "ended_before": False, **how}
    return observe_rank(0, container, **arguments).status.phase


@pytest.mark.parametrize(
    ("container", "category"),
    [
        (ended(3), Category.CRASHED),
        (ended(255), Category.CRASHED),
        (ended(139), Category.CRASHED),
        (ended(137), Category.KILLED),
        (ended(143), Category.KILLED),
        (ended(137, was_out_of_memory=True), Category.OUT_OF_MEMORY),
        (ended(1, log_tail="MemoryError"), Category.OUT_OF_MEMORY),
        (ended(127, log_tail="[FATAL tini (7)] exec x failed"), Category.COMMAND_NOT_FOUND),
        (ended(126, log_tail="[FATAL tini (7)] exec x failed"), Category.COMMAND_NOT_EXECUTABLE),
        (ended(127), Category.CRASHED),
        (replace(RUNNING, status="removing"), Category.CONTAINER_REMOVED),
        (replace(RUNNING, status="dead"), Category.CONTAINER_REMOVED),
        (None, Category.CONTAINER_REMOVED),
    ],
)
def test_a_failed_rank_has_a_diagnosis(container: Container | None, category: Category) -> None:
    seen = observe_rank(0, container, launching=False, stopping=False, ended_before=False)
    assert seen.status.phase is Phase.FAILED
    assert seen.diagnosis is not None
    assert seen.diagnosis.category is category


def test_a_stopped_rank_has_failed_only_if_it_failed_before_the_stop() -> None:
    assert phase(ended(143), stopping=True) is Phase.STOPPED
    assert phase(None, stopping=True) is Phase.STOPPED
    assert phase(ended(3), stopping=True, ended_before=True) is Phase.FAILED
    assert phase(ended(0), stopping=True, ended_before=True) is Phase.SUCCEEDED


def test_a_missing_or_created_container_is_pending_during_the_launch() -> None:
    assert phase(None, launching=True) is Phase.PENDING
    assert phase(replace(RUNNING, status="created")) is Phase.PENDING


def test_an_unknown_status_is_in_the_note() -> None:
    seen = observe_rank(
        0, replace(RUNNING, status="hibernating"), launching=False, stopping=False, ended_before=False
    )
    assert (seen.status.phase, seen.diagnosis) == (Phase.PENDING, None)
    assert "'hibernating'" in seen.status.note


def test_a_list_and_an_inspection_parse_to_the_same_container() -> None:
    entry = {
        "Id": "a",
        "Names": ["/other/alias", "/program-1-master"],
        "Labels": LABELS,
        "State": "running",
        "Image": "image",
        "ImageID": "sha256:1",
        "Created": 1795262400,
    }
    answer = {
        "Id": "a",
        "Name": "/program-1-master",
        "Created": "2026-11-21T12:00:00Z",
        "Image": "sha256:1",
        "Config": {"Labels": LABELS, "Image": "image"},
        "State": {"Status": "running", "ExitCode": 0, "FinishedAt": "0001-01-01T00:00:00Z"},
    }
    assert listed(entry) == inspected(answer) == RUNNING
    assert (RUNNING.group, RUNNING.rank, RUNNING.instances) == (job().group, 0, 2)


@pytest.mark.parametrize("change", [{"name": "stranger"}, {"labels": {}}])
def test_a_foreign_container_has_no_rank(change: dict[str, Any]) -> None:
    assert replace(RUNNING, **change).rank is None


async def test_late_messages_do_not_change_the_end_of_a_rank() -> None:
    groups = Groups(lambda: NOON.timestamp() + 60)
    groups.put(RUNNING)
    groups.put(ended(3))
    groups.put(RUNNING)  # a late message
    groups.remove(RUNNING)
    seen = groups.observe_all()[job().group].ranks[0]
    assert (seen.status.phase, seen.status.exit_code) == (Phase.FAILED, 3)
