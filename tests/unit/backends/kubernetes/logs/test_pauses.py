"""The pauses between attempts to follow a log while the pod runs and its node does not serve the log."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, cast

import pytest

from job_tracker.backends.kubernetes.api_errors import Unreachable
from job_tracker.backends.kubernetes.client import KubernetesClient
from job_tracker.backends.kubernetes.groups import Groups, PodGroup
from job_tracker.backends.kubernetes.logs import PodLogs
from job_tracker.domain.group import GroupRef
from job_tracker.logs.spool import FolderSpool
from tests.support.pods import container, pod

RUNNING = pod("Running", container({"running": {"startedAt": "2026-11-21T12:00:00Z"}}))
LINE = b"2026-11-21T12:00:0%d.5Z hello\n"


class Node:
    """A client whose streams yield scripted pieces and then break."""

    def __init__(self, *streams: Sequence[bytes]) -> None:
        self._streams = list(streams)
        self.queries: list[dict[str, Any]] = []

    async def logs(
        self, _pod: str, query: Sequence[tuple[str, str]], *, silence: float
    ) -> AsyncGenerator[bytes, None]:
        self.queries.append(dict(query))
        for piece in self._streams.pop(0) if self._streams else ():
            yield piece
        raise Unreachable(0, "NoConnection", f"broken before {silence} s")


class Waits(Groups):
    """Groups that do not wait, but record the requested times."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.asked: list[float] = []
        self._number = number

    async def wait(
        self, group: PodGroup, condition: Callable[[PodGroup], bool], within: float | None
    ) -> bool:
        if within is not None:
            self.asked.append(within)
        if len(self.asked) == self._number:
            raise asyncio.CancelledError
        return True


async def pauses(node: Node, number: int) -> list[float]:
    """Follow the log of a running pod, and return the first pauses."""
    waits = Waits(number)
    group = PodGroup(GroupRef("program-1", 1, 1), 1, pods={0: RUNNING})
    pod_logs = PodLogs(cast(KubernetesClient, node), waits, cast(FolderSpool, None))
    with pytest.raises(asyncio.CancelledError):
        async for _ in pod_logs.read_live(group, 0, follow=True):
            pass
    return waits.asked


def assert_within(asked: list[float], *longest: float) -> None:
    assert len(asked) == len(longest)
    assert all(most / 2 <= pause <= most for pause, most in zip(asked, longest, strict=True)), asked


async def test_pauses_grow_to_five_minutes() -> None:
    assert_within(await pauses(Node(), 11), 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300)


async def test_the_pause_is_short_again_after_a_stream_with_lines() -> None:
    streams: list[Any] = [[], [], [LINE % 1], [LINE % 2], []]
    assert_within(await pauses(Node(*streams), 6), 1, 2, 1, 1, 2, 4)


async def test_a_stream_continues_from_the_second_of_the_last_record() -> None:
    node = Node([LINE % 1, LINE % 2], [])
    await pauses(node, 2)
    assert [query.get("sinceTime") for query in node.queries] == [None, "2026-11-21T12:00:02Z"]
