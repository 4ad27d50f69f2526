"""How often the API server is asked at the door, and who hears its answer."""

import asyncio
from typing import Any, cast

import pytest

from job_tracker.backends.kubernetes.api_errors import Unreachable
from job_tracker.backends.kubernetes.backend import KubernetesBackend
from job_tracker.backends.kubernetes.preflight import DryRun
from job_tracker.domain.errors import InvalidField
from job_tracker.domain.job import Job
from tests.support.jobs import spec


class Admission:
    """A backend whose check takes until `answer` is called."""

    def __init__(self) -> None:
        self.asked: list[Job] = []
        self._error: Exception | None = None
        self._answered = asyncio.Event()

    async def check(self, job: Job) -> None:
        self.asked.append(job)
        await self._answered.wait()
        if self._error is not None:
            raise self._error

    def answer(self, error: Exception | None = None) -> None:
        self._error = error
        self._answered.set()


def rehearsal_of(door: Admission) -> DryRun:
    return DryRun(cast(KubernetesBackend, door))


async def submitted(rehearsal: DryRun, number: int, **changes: Any) -> list[asyncio.Task[None]]:
    """So many jobs that are all waiting for an answer."""
    waiting = [asyncio.create_task(rehearsal.check(spec(**changes))) for _ in range(number)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    return waiting


async def test_jobs_that_come_together_ask_once() -> None:
    door = Admission()
    rehearsal = rehearsal_of(door)
    waiting = await submitted(rehearsal, 200)
    door.answer()
    await asyncio.gather(*waiting)
    await rehearsal.check(spec())
    assert len(door.asked) == 1


async def test_other_options_are_asked_about_by_themselves() -> None:
    door = Admission()
    rehearsal = rehearsal_of(door)
    waiting = [
        *await submitted(rehearsal, 2),
        *await submitted(rehearsal, 2, pod_options={"priority_class": "high"}),
    ]
    door.answer()
    await asyncio.gather(*waiting)
    assert len(door.asked) == 2


async def test_each_of_them_hears_of_the_refusal_and_the_next_asks_again() -> None:
    door = Admission()
    rehearsal = rehearsal_of(door)
    waiting = await submitted(rehearsal, 3)
    door.answer(InvalidField("pod_options", "no"))
    assert [str(error) for error in await asyncio.gather(*waiting, return_exceptions=True)] == [
        str(InvalidField("pod_options", "no"))
    ] * 3
    with pytest.raises(InvalidField):
        await rehearsal.check(spec())
    assert len(door.asked) == 2


async def test_one_that_hangs_up_takes_the_answer_from_nobody() -> None:
    door = Admission()
    rehearsal = rehearsal_of(door)
    first, second = await submitted(rehearsal, 2)
    first.cancel()
    await asyncio.wait([first])
    door.answer(InvalidField("pod_options", "no"))
    with pytest.raises(InvalidField):
        await second


async def test_a_server_that_is_away_refuses_nobody_and_is_asked_again() -> None:
    door = Admission()
    rehearsal = rehearsal_of(door)
    waiting = await submitted(rehearsal, 2)
    door.answer(Unreachable(0, "NoConnection", "away"))
    await asyncio.gather(*waiting)
    await rehearsal.check(spec())
    assert len(door.asked) == 2
