"""Parts that several viewers watch are made once, are fresh, and are forgotten."""

import asyncio

import pytest

from job_tracker.domain.caller import Caller, Means, Role
from tests.support.patience import PATIENCE
from training_service.web.shared import SharedParts, rights_of, version


class Maker:
    """Counts the versions of a part."""

    def __init__(self) -> None:
        self.begun = 0
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def __call__(self) -> int:
        self.begun += 1
        number = self.begun
        await self.go_on.wait()
        return number


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_viewers_who_ask_together_share_a_version() -> None:
    parts, make = SharedParts(pause=0), Maker()
    since = now()
    assert await asyncio.gather(*(parts.made("key", since, make) for _ in range(50))) == [1] * 50
    assert await parts.made("other", since, make) == 2


async def test_a_version_that_was_begun_before_a_change_does_not_count() -> None:
    parts, make = SharedParts(pause=0), Maker()
    make.go_on.clear()
    first = asyncio.create_task(parts.made("key", now(), make))
    while not make.begun:
        await asyncio.sleep(0)
    await asyncio.sleep(0.001)
    second = asyncio.create_task(parts.made("key", now(), make))
    make.go_on.set()
    assert await first == 1
    assert await second == 2


async def test_versions_have_a_pause_between_them() -> None:
    parts, make = SharedParts(pause=0.2), Maker()
    began = now()
    assert await parts.made("key", now(), make) == 1
    assert await asyncio.gather(*(parts.made("key", now(), make) for _ in range(3))) == [2] * 3
    assert now() - began >= 0.2


async def test_a_viewer_who_leaves_does_not_end_the_version_of_others() -> None:
    parts, make = SharedParts(pause=0), Maker()
    make.go_on.clear()
    since = now()
    first, second = (asyncio.create_task(parts.made("key", since, make)) for _ in range(2))
    while not make.begun:
        await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    make.go_on.set()
    assert await second == 1


async def test_an_error_is_everybodys_and_the_next_version_is_tried_again() -> None:
    parts = SharedParts(pause=0)

    async def fail() -> int:
        raise LookupError

    since = now()
    for _ in range(2):
        with pytest.raises(LookupError):
            await parts.made("key", since, fail)
    await asyncio.sleep(0.001)
    assert await parts.made("key", now(), Maker()) == 1


async def test_versions_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training_service.web.shared._LONGEST_PAUSE", 0.01)
    parts = SharedParts(pause=0)
    await parts.made("key", now(), Maker())
    async with asyncio.timeout(PATIENCE):
        while parts._made:
            await asyncio.sleep(0.01)


def test_callers_with_the_same_roles_see_the_same() -> None:
    def caller(name: str, project: str = "vision", **roles: Role) -> Caller:
        return Caller(name=name, means=Means.TOKEN, roles=roles, default_project=project)

    assert rights_of(caller("ada", vision=Role.VIEWER)) == rights_of(caller("bob", vision=Role.VIEWER))
    assert rights_of(caller("ada", vision=Role.VIEWER)) != rights_of(caller("ada", vision=Role.ADMIN))
    assert rights_of(caller("ada", vision=Role.VIEWER)) != rights_of(caller("ada", speech=Role.VIEWER))
    assert rights_of(caller("ada", "one", vision=Role.VIEWER)) != rights_of(caller("ada", vision=Role.VIEWER))


def test_the_digest_tells_texts_apart() -> None:
    assert version("rows", "a").digest == version("rows", "a").digest != version("rows", "b").digest
    made = version("rows", "a\nb")
    assert made.event == f"id: {made.digest}\nevent: rows\ndata: a\ndata: b\n\n".encode()
