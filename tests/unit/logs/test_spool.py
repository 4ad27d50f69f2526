"""The spool copies logs before their instances go, even if the engine fails now and then."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from job_tracker.backends.kubernetes.api_errors import ApiError, NotFound, Unreachable
from job_tracker.domain import naming
from job_tracker.domain.group import GroupRef
from job_tracker.files.untrusted import place_of
from job_tracker.logs import segments, spool
from job_tracker.logs.spool import FolderSpool

GROUP = GroupRef("program-1", 1, 1)
AWAY = Unreachable(500, "InternalError", "injected")
BEGUN, ENDED = b"2026-11-21T12:00:00.000000Z begun\n", b"2026-11-21T12:00:01.000000Z ended\n"


class Node:
    """Streams of one line, which then fail with the given error or give a second line."""

    def __init__(self, *failures: ApiError) -> None:
        self.failures = list(failures)
        self.asked = 0

    async def read(self) -> AsyncGenerator[bytes, None]:
        self.asked += 1
        yield BEGUN
        if self.failures:
            raise self.failures.pop(0)
        yield ENDED


async def kept(node: Node, folder: Path) -> bytes:
    """The log in the spool."""
    made = FolderSpool(folder, 1 << 20)
    await made.keep(GROUP, 0, 0, node.read, again_after=(Unreachable,))
    return await content(made)


async def content(made: FolderSpool) -> bytes:
    paths = made.find(GROUP, 0).values()
    return b"".join([piece for path in paths async for piece in segments.read(place_of(path))])


async def test_a_log_that_fails_in_the_middle_is_read_again(tmp_path: Path) -> None:
    node = Node(AWAY, AWAY)
    assert await kept(node, tmp_path) == BEGUN + ENDED
    assert node.asked == 3


async def test_a_log_that_keeps_failing_is_kept_up_to_the_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "_KEEP_PAUSES", (0.01,))
    node = Node(*[AWAY] * 5)
    assert await kept(node, tmp_path) == BEGUN
    assert node.asked == 2


async def test_what_was_read_before_a_cancellation_is_kept_until_more_is_read(tmp_path: Path) -> None:
    """The stop of a group waits for its logs for a limited time, and then removes its instances."""
    made, is_read = FolderSpool(tmp_path, 1 << 20), asyncio.Event()

    async def slow() -> AsyncGenerator[bytes, None]:
        yield BEGUN
        is_read.set()
        await asyncio.Event().wait()

    keeping = asyncio.create_task(made.keep(GROUP, 0, 0, slow))
    await is_read.wait()
    keeping.cancel()
    await asyncio.wait([keeping])
    assert keeping.cancelled()
    assert await content(made) == BEGUN
    await made.keep(GROUP, 0, 0, Node().read)
    assert await content(made) == BEGUN + ENDED


async def test_a_log_that_is_gone_is_read_only_once(tmp_path: Path) -> None:
    node = Node(NotFound(404, "NotFound", "no such pod"))
    assert await kept(node, tmp_path) == BEGUN
    assert node.asked == 1


async def test_each_start_of_a_rank_has_its_own_log(tmp_path: Path) -> None:
    made = FolderSpool(tmp_path, 1 << 20)
    for restarts in (0, 2, 10):
        await made.keep(GROUP, 1, restarts, Node().read)
    assert list(made.find(GROUP, 1)) == [0, 2, 10]
    assert made.find(GROUP, 0) == {}


async def test_a_group_waits_once_it_no_longer_runs(tmp_path: Path) -> None:
    made, living = FolderSpool(tmp_path, 1 << 20), {GROUP}
    made.lives = living.__contains__
    await made.keep(GROUP, 0, 0, Node().read)
    assert await made.waiting() == []
    living.clear()
    assert await made.waiting() == [GROUP]


ONE, OTHER = "1a2b3c4d", "deadbeef"
OF_ONE = GroupRef("program-1", 1, 1, naming.home_in_store(ONE))


def spool_of(store_id: str, folder: Path) -> FolderSpool:
    return FolderSpool(folder, 1 << 20, store_id)


async def test_logs_of_another_store_are_not_touched(tmp_path: Path) -> None:
    one, other = spool_of(ONE, tmp_path), spool_of(OTHER, tmp_path)
    await one.keep(GROUP, 0, 0, Node().read)  # engines do not know the home of a group
    assert list(one.find(OF_ONE, 0)) == [0]
    assert [(ref, ref.home) for ref in await one.waiting()] == [(GROUP, OF_ONE.home)]
    assert (await other.waiting(), other.find(GROUP, 0)) == ([], {})
    await other.drop(GROUP)
    await other.sweep()
    assert list(one.find(OF_ONE, 0)) == [0]
    await one.drop(OF_ONE)
    assert await one.waiting() == []


async def test_logs_of_the_previous_version_belong_to_jobs_without_a_home(tmp_path: Path) -> None:
    await spool_of("", tmp_path).keep(GROUP, 0, 0, Node().read)
    now = spool_of(ONE, tmp_path)
    assert (list(now.find(GROUP, 0)), list(now.find(OF_ONE, 0))) == ([0], [])
    await now.keep(GROUP, 1, 0, Node().read)
    assert list(now.find(GROUP, 1)) == [0]
    assert {ref.home for ref in await now.waiting()} == {OF_ONE.home, ""}
    for ref in await now.waiting():
        await now.drop(ref)
    assert await now.waiting() == []
