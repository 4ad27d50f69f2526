"""What is kept of the logs of pods that are about to go, when the API server does not answer every time."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import cast

import pytest

from job_tracker.backends.kubernetes import logs
from job_tracker.backends.kubernetes.api_errors import ApiError, NotFound, Unreachable
from job_tracker.backends.kubernetes.client import KubernetesClient
from job_tracker.backends.kubernetes.logs import KeptLogs
from job_tracker.model import GroupRef
from tests.support.pods import container, pod, terminated

GROUP = GroupRef("program-1", 1, 1)
ENDED = pod("Succeeded", container(terminated(0, "Completed")))
AWAY = Unreachable(500, "InternalError", "injected")


class Node:
    """A client whose streams each say one word, and then fail as is written down for them."""

    def __init__(self, *failures: ApiError) -> None:
        self.failures = list(failures)
        self.asked = 0

    async def logs(self, _pod: str, _query: object, *, silence: float) -> AsyncGenerator[bytes, None]:
        self.asked += 1
        yield b"begun, "
        if self.failures:
            raise self.failures.pop(0)
        yield b"and ended\n"


async def kept(node: Node, folder: Path) -> str:
    """What the file has in the end."""
    keeper = KeptLogs(cast(KubernetesClient, node), folder)
    await keeper.keep(GROUP, 0, ENDED)
    path = keeper.find(GROUP, 0)
    return path.read_text() if path else ""


async def test_a_log_that_breaks_off_is_read_again(tmp_path: Path) -> None:
    node = Node(AWAY, AWAY)
    assert await kept(node, tmp_path) == "begun, and ended\n"
    assert node.asked == 3


async def test_of_a_log_that_cannot_be_had_there_is_what_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_KEEP_PAUSES", (0.01,))
    node = Node(*[AWAY] * 5)
    assert await kept(node, tmp_path) == "begun, "
    assert node.asked == 2


async def test_a_log_that_is_gone_is_not_asked_for_again(tmp_path: Path) -> None:
    node = Node(NotFound(404, "NotFound", "no such pod"))
    assert await kept(node, tmp_path) == "begun, "
    assert node.asked == 1
