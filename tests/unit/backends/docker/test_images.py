"""Pulls of images, which outlast the launches that began them."""

import asyncio

import pytest

from job_tracker.backends.docker import images
from job_tracker.backends.docker.engine_errors import Refused
from job_tracker.backends.docker.images import Images
from job_tracker.domain.errors import BackendUnavailable, LaunchFailed

IMAGE = "registry.example.com/training:1"


class Engine:
    """An engine without images. Its pulls fail once `answers` is set."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.pulls = 0

    async def has_image(self, image: str) -> bool:
        assert image == IMAGE
        await asyncio.sleep(0)
        return False

    async def pull(self, image: str) -> None:
        assert image == IMAGE
        self.pulls += 1
        await self.answers.wait()
        raise Refused(500, "the registry is away")


@pytest.fixture
async def abandoned(monkeypatch: pytest.MonkeyPatch) -> tuple[Engine, Images]:
    """Images whose only caller has left before its pull failed."""
    engine = Engine()
    made = Images(engine)  # type: ignore[arg-type]
    monkeypatch.setattr(images, "_PATIENCE", 0.0)
    with pytest.raises(BackendUnavailable, match="still being pulled"):
        await made.ensure(IMAGE, "missing")
    engine.answers.set()
    await asyncio.wait([made._pulls[IMAGE].task])
    await asyncio.sleep(0)  # the callbacks of the task run
    monkeypatch.setattr(images, "_PATIENCE", 30.0)
    return engine, made


async def test_callers_that_look_at_the_same_time_share_one_pull() -> None:
    engine = Engine()
    made = Images(engine)  # type: ignore[arg-type]
    engine.answers.set()
    both = await asyncio.gather(*(made.ensure(IMAGE, "missing") for _ in range(2)), return_exceptions=True)
    assert [type(each) for each in both] == [LaunchFailed, LaunchFailed]
    assert engine.pulls == 1
    assert made._pulls == {}


async def test_a_repeated_launch_gets_the_result_of_its_pull(abandoned: tuple[Engine, Images]) -> None:
    engine, made = abandoned
    with pytest.raises(LaunchFailed) as raised:
        await made.ensure(IMAGE, "missing")
    assert "the registry is away" in raised.value.diagnosis.detail
    assert engine.pulls == 1


async def test_a_later_job_does_not_get_the_result_of_an_old_pull(
    abandoned: tuple[Engine, Images], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, made = abandoned
    monkeypatch.setattr(images, "_REPEATED_SECONDS", -1.0)
    with pytest.raises(LaunchFailed):
        await made.ensure(IMAGE, "missing")
    assert engine.pulls == 2
