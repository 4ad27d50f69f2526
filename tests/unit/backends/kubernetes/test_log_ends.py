"""A failed pod whose message the kubelet has cut is diagnosed by the end of its log."""

from typing import Any

from job_tracker.backends.kubernetes.groups import PodGroup
from job_tracker.backends.kubernetes.settings import KubernetesSettings
from job_tracker.domain.group import GroupRef, Phase
from tests.support.pods import LATE, container, pod, terminated

CUT = "a line of a launcher\n" * 200
CAUSE = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\nKeyError: 1\n'
LOST = f"{CAUSE[: CAUSE.index('KeyError')]}RuntimeError: Connection closed by peer\n"


def failed(uid: str, message: str, finished: int) -> dict[str, Any]:
    made = pod("Failed", container(terminated(1, message=message, finished=finished)))
    made["metadata"]["uid"] = uid
    return made


def phases(group: PodGroup) -> list[Phase]:
    group.last = group.observe(LATE, KubernetesSettings(), changed_only=True, reads_logs=True)
    return [rank.phase for rank in group.last.statuses]


def test_a_failure_is_shown_when_its_log_was_read_and_others_wait_for_it() -> None:
    group = PodGroup(GroupRef("a-1", 1, 1), 2)
    first, second = failed("1", CUT, finished=30), failed("2", LOST, finished=30)
    group.take(0, first, gone=False)
    group.take(1, second, gone=False)
    assert phases(group) == [Phase.RUNNING] * 2
    assert group.wanted == {0: first}
    group.has_read(0, first, CAUSE + CUT)
    assert phases(group) == [Phase.FAILED] * 2
    assert group.last is not None
    assert group.last.first_failure is not None
    assert (group.last.first_failure.rank, "KeyError: 1" in group.last.first_failure.cause) == (0, True)


def test_a_log_that_cannot_be_read_leaves_the_message() -> None:
    group = PodGroup(GroupRef("a-1", 1, 1), 1)
    one = failed("1", CUT + CAUSE, finished=30)
    group.take(0, one, gone=False)
    assert phases(group) == [Phase.RUNNING]
    group.has_read(0, one, "")
    assert phases(group) == [Phase.FAILED]
    assert group.last is not None
    assert group.last.first_failure is not None
    assert "KeyError: 1" in group.last.first_failure.cause


def test_a_short_message_is_whole() -> None:
    group = PodGroup(GroupRef("a-1", 1, 1), 1)
    group.take(0, failed("1", CAUSE, finished=30), gone=False)
    assert phases(group) == [Phase.FAILED]
    assert not group.wanted
