"""trainctl tag and trainctl note, and where tags and notes are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.trainctl import SUBMIT, metadata
from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from tests.support.fake_service import ServerInThread
    from tests.support.trainctl import Trainctl


def test_tags_are_given_at_submission_changed_and_used_by_lists(
    training: ServerInThread, trainctl: Trainctl
) -> None:
    trainctl(*SUBMIT, "--tag", "baseline", "-t", "team=a")
    trainctl(*SUBMIT)
    assert training.service.submitted[1].tags == ["baseline", "team=a"]
    assert trainctl("tag", "1", "best", "--remove", "baseline").stdout == "job 1: tags: best,team=a\n"
    assert trainctl("list", "-q", "--tag", "best", "-t", "team=a").stdout == "1\n"
    heading, row = trainctl.on_terminal("list", "--tag", "best").stdout.splitlines()
    assert "TAGS" in heading
    assert "best,team" in row
    assert "TAGS" not in trainctl.on_terminal("list", "--name", "bert", "--before", "1").stdout
    assert trainctl("tag", "1", "--remove", "best", "--remove", "team=a").stdout == "job 1: tags: none\n"
    assert trainctl("tag", "1").exit_code == 2


def test_a_job_is_held_by_a_tag_and_released(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(1, metadata=metadata("a"), status=pb.running)
    assert trainctl("hold", "1").stdout == "job 1: not stopped if it makes no progress\n"
    assert trainctl("list", "-q", "--tag", "held").stdout == "1\n"
    assert trainctl("release", "1").stdout == "job 1: watched again\n"
    assert trainctl("list", "-q", "--tag", "held").stdout == ""


def test_a_note_is_replaced_and_removed(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(1, metadata=metadata("a"), status=pb.succeed, tags=["best"])
    assert trainctl("note", "1", "Better\nthan \x1b[2J").stdout == "job 1: note: Better\\nthan \\x1b[2J\n"
    for command in ("status", "describe"):
        shown = trainctl(command, "1").stdout
        assert "\ntags: best\nnote: Better\n    than \\x1b[2J\n" in shown
        assert r"than \x1b[2J" in trainctl.on_terminal(command, "1").stdout
    assert trainctl("note", "1", "").stdout == "job 1: note: none\n"
    assert "note" not in trainctl("status", "1").stdout
