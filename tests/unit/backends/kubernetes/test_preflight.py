"""The preflight: concurrent checks share a call to the API server, and its answer."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from job_tracker.backends.kubernetes.api_errors import Unreachable
from job_tracker.backends.kubernetes.backend import KubernetesBackend
from job_tracker.backends.kubernetes.preflight import DryRun
from job_tracker.domain.errors import InvalidField
from job_tracker.domain.job import Job
from tests.support.jobs import spec


class Admission:
    """A backend whose check returns once `answer` is called."""

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


def preflight_of(backend: Admission) -> DryRun:
    return DryRun(cast(KubernetesBackend, backend))


async def submitted(preflight: DryRun, number: int, **changes: Any) -> list[asyncio.Task[None]]:
    """Start that many checks, which all wait for the answer."""
    waiting = [asyncio.create_task(preflight.check(spec(**changes))) for _ in range(number)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    return waiting


async def test_concurrent_jobs_share_one_check() -> None:
    backend = Admission()
    preflight = preflight_of(backend)
    waiting = await submitted(preflight, 200)
    backend.answer()
    await asyncio.gather(*waiting)
    await preflight.check(spec())
    assert len(backend.asked) == 1


async def test_other_options_are_checked_separately() -> None:
    backend = Admission()
    preflight = preflight_of(backend)
    waiting = [
        *await submitted(preflight, 2),
        *await submitted(preflight, 2, pod_options={"priority_class": "high"}),
    ]
    backend.answer()
    await asyncio.gather(*waiting)
    assert len(backend.asked) == 2


async def test_another_image_of_a_program_is_checked_separately() -> None:
    backend = Admission()
    preflight, first = preflight_of(backend), spec()
    backend.answer()
    for image in ("one", "two", "one"):
        trainers = replace(first.group.trainers, image=image)
        await preflight.check(replace(first, group=replace(first.group, trainers=trainers)))
    assert [job.spec.group.trainers.image for job in backend.asked] == ["one", "two"]


async def test_a_refusal_reaches_all_callers_and_the_next_job_is_checked_again() -> None:
    backend = Admission()
    preflight = preflight_of(backend)
    waiting = await submitted(preflight, 3)
    backend.answer(InvalidField("pod_options", "no"))
    assert [str(error) for error in await asyncio.gather(*waiting, return_exceptions=True)] == [
        str(InvalidField("pod_options", "no"))
    ] * 3
    with pytest.raises(InvalidField):
        await preflight.check(spec())
    assert len(backend.asked) == 2


async def test_a_cancelled_caller_does_not_cancel_the_check_for_others() -> None:
    backend = Admission()
    preflight = preflight_of(backend)
    first, second = await submitted(preflight, 2)
    first.cancel()
    await asyncio.wait([first])
    backend.answer(InvalidField("pod_options", "no"))
    with pytest.raises(InvalidField):
        await second


async def test_an_unreachable_server_refuses_no_job_and_is_asked_again() -> None:
    backend = Admission()
    preflight = preflight_of(backend)
    waiting = await submitted(preflight, 2)
    backend.answer(Unreachable(0, "NoConnection", "away"))
    await asyncio.gather(*waiting)
    await preflight.check(spec())
    assert len(backend.asked) == 2
