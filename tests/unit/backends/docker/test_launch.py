"""Repeated launches: the known containers decide, before any call to the engine."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from job_tracker.backends.docker.containers import Container
from job_tracker.backends.docker.groups import ContainerGroup, Groups
from job_tracker.backends.docker.launch import Launcher
from job_tracker.backends.docker.plan import DockerPlan, plan
from job_tracker.backends.docker.plugin import DockerPlugin
from job_tracker.backends.docker.settings import DockerSettings
from job_tracker.domain.diagnosis import Category
from job_tracker.domain.errors import LaunchFailed
from job_tracker.domain.job import Job
from tests.support.catalog import algorithm_of, resolved
from tests.support.jobs import NOON, job

ASKED = job(instances=3)


class Asked(Exception):
    """The engine received a call."""


class Engine:
    """An engine that raises Asked for every call."""

    def __getattr__(self, name: str) -> Any:
        raise Asked(name)


def planned(of: Job = ASKED, command: str = "train") -> DockerPlan:
    algorithms = {"program": algorithm_of(docker={"image": "image:1", "command": (command,)})}
    settings = DockerSettings(instance="test")
    return plan(resolved(of, algorithms, "docker", DockerPlugin(settings)), settings, most_log=1 << 20)


def known(
    made_from: DockerPlan, *statuses: str, removed: tuple[int, ...] = ()
) -> tuple[Groups, ContainerGroup]:
    """Make a group with a container for each rank that has a status."""
    groups = Groups()
    for rank, status in enumerate(statuses):
        if status:
            wanted = made_from.containers[rank]
            labels = wanted.request["Labels"]
            container = Container(
                id=str(rank),
                name=wanted.name,
                labels=labels,
                status=status,
                program="",
                created_at=0.0,
                ended_at=1.0 if status == "exited" else None,
            )
            groups.put(container)
            if rank in removed:
                groups.remove(container)
    return groups, groups.begin(made_from.group, made_from.instances)


async def launch(groups: Groups, group: ContainerGroup, wanted: DockerPlan) -> None:
    engine: Any = Engine()
    await Launcher(engine, engine, groups, engine, engine, engine).launch(wanted, group)


@pytest.mark.parametrize(
    ("statuses", "removed", "rank"),
    [
        (("", "running", "running"), (), 0),
        (("", "created", ""), (), 0),
        (("running", "running", "created"), (0,), 0),
        (("running", "", "running"), (), 1),
        (("exited", "created", ""), (), 2),
        (("running", "running", "running"), (2,), 2),
    ],
)
async def test_a_group_with_a_removed_container_fails(
    statuses: tuple[str, ...], removed: tuple[int, ...], rank: int
) -> None:
    wanted = planned()
    with pytest.raises(LaunchFailed) as failed:
        await launch(*known(wanted, *statuses, removed=removed), wanted)
    why = failed.value.diagnosis
    assert (why.category, why.rank, why.retryable) == (Category.CONTAINER_REMOVED, rank, True)


@pytest.mark.parametrize("statuses", [("", "", ""), ("created", "", ""), ("created", "created", "created")])
async def test_a_group_that_was_never_started_is_completed(statuses: tuple[str, ...]) -> None:
    wanted = planned()
    with pytest.raises(Asked):
        await launch(*known(wanted, *statuses), wanted)


async def test_a_running_group_of_another_configuration_is_adopted() -> None:
    await launch(*known(planned(command="earlier"), "running", "running", "exited"), planned())


async def test_a_group_of_another_store_is_replaced() -> None:
    lost = planned(replace(ASKED, submitted_at=NOON - timedelta(days=1)))
    with pytest.raises(Asked):
        await launch(*known(lost, "running", "running", "running"), planned())
