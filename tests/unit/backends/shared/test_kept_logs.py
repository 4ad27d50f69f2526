"""What is kept of the logs of pods that are about to go, when the API server does not answer every time."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from job_tracker.backends.kubernetes.api_errors import ApiError, NotFound, Unreachable
from job_tracker.backends.shared import kept_logs
from job_tracker.backends.shared.kept_logs import KeptLogs
from job_tracker.domain import naming
from job_tracker.domain.group import GroupRef
from job_tracker.files.untrusted import place_of
from job_tracker.logs import segments

GROUP = GroupRef("program-1", 1, 1)
AWAY = Unreachable(500, "InternalError", "injected")
BEGUN, ENDED = b"2026-11-21T12:00:00.000000Z begun\n", b"2026-11-21T12:00:01.000000Z ended\n"


class Node:
    """Streams that each say one line, and then fail as is written down for them, or say another."""

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
    """What there is in the end."""
    keeper = KeptLogs(folder, most_log=1 << 20, away=Unreachable)
    await keeper.keep(GROUP, 0, 0, node.read)
    paths = keeper.find(GROUP, 0).values()
    return b"".join([piece for path in paths async for piece in segments.read(place_of(path))])


async def test_a_log_that_breaks_off_is_read_again(tmp_path: Path) -> None:
    node = Node(AWAY, AWAY)
    assert await kept(node, tmp_path) == BEGUN + ENDED
    assert node.asked == 3


async def test_of_a_log_that_cannot_be_had_there_is_what_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_logs, "_KEEP_PAUSES", (0.01,))
    node = Node(*[AWAY] * 5)
    assert await kept(node, tmp_path) == BEGUN
    assert node.asked == 2


async def test_a_log_that_is_gone_is_not_asked_for_again(tmp_path: Path) -> None:
    node = Node(NotFound(404, "NotFound", "no such pod"))
    assert await kept(node, tmp_path) == BEGUN
    assert node.asked == 1


async def test_each_start_of_a_rank_has_a_log_of_its_own(tmp_path: Path) -> None:
    keeper = KeptLogs(tmp_path, most_log=1 << 20, away=Unreachable)
    for restarts in (0, 2, 10):
        await keeper.keep(GROUP, 1, restarts, Node().read)
    assert list(keeper.find(GROUP, 1)) == [0, 2, 10]
    assert keeper.find(GROUP, 0) == {}


ONE, OTHER = "1a2b3c4d", "deadbeef"
OF_ONE = GroupRef("program-1", 1, 1, naming.home(ONE))


def keeper_of(store_id: str, folder: Path) -> KeptLogs:
    return KeptLogs(folder, most_log=1 << 20, away=Unreachable, store_id=store_id)


async def test_logs_of_another_store_are_left_alone(tmp_path: Path) -> None:
    one, other = keeper_of(ONE, tmp_path), keeper_of(OTHER, tmp_path)
    await one.keep(GROUP, 0, 0, Node().read)  # engines know no home of a group
    assert list(one.find(OF_ONE, 0)) == [0]
    assert [(ref, ref.home) for ref in one.groups()] == [(GROUP, OF_ONE.home)]
    assert (other.groups(), other.find(GROUP, 0)) == ([], {})
    await other.discard(GROUP)
    await other.sweep()
    assert list(one.find(OF_ONE, 0)) == [0]
    await one.discard(OF_ONE)
    assert one.groups() == []


async def test_logs_that_the_version_before_kept_are_of_jobs_accepted_by_it(tmp_path: Path) -> None:
    await keeper_of("", tmp_path).keep(GROUP, 0, 0, Node().read)
    now = keeper_of(ONE, tmp_path)
    assert (list(now.find(GROUP, 0)), list(now.find(OF_ONE, 0))) == ([0], [])
    await now.keep(GROUP, 1, 0, Node().read)
    assert list(now.find(GROUP, 1)) == [0]
    assert {ref.home for ref in now.groups()} == {OF_ONE.home, ""}
    for ref in now.groups():
        await now.discard(ref)
    assert now.groups() == []
