"""trainctl status, in a pipe, as JSON and on a terminal."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.support.trainctl import DIAGNOSIS, HOSTILE, metadata
from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from tests.support.fake_service import ServerInThread
    from tests.support.trainctl import Trainctl


def test_status_in_a_pipe_prints_labelled_lines(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(1, metadata=metadata(HOSTILE), status=pb.failure, diagnosis=DIAGNOSIS)
    result = trainctl("status", "1")
    assert result.exit_code == 0
    assert "name: [red]evil\\x1b[2J\\nname\n" in result.stdout
    assert "what to do: Use less.\n" in result.stdout


def test_status_shows_the_project_and_the_submitter(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(1, metadata=metadata("a"), project="vision", submitted_by=HOSTILE)
    shown = trainctl("status", "1").stdout
    assert "project: vision\nsubmitted by: [red]evil\\x1b[2J\\nname\n" in shown
    training.set_job(2, metadata=metadata("a"))
    assert "project" not in trainctl("status", "2").stdout, "a service of an earlier version"


def test_status_as_json_is_the_message(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(1, status=pb.failure, diagnosis=DIAGNOSIS)
    answer = json.loads(trainctl("--json", "status", "1").stdout)
    assert answer["diagnosis"] == {
        "category": "",
        "summary": "It ran out of memory.",
        "detail": "Killed",
        "resolution": "Use less.",
        "retryable": False,
        "cause": "",
    }


def test_status_on_a_terminal_explains_a_failure(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(1, metadata=metadata(HOSTILE), status=pb.failure, diagnosis=DIAGNOSIS)
    shown = trainctl.on_terminal("status", "1").stdout
    assert r"[red]evil\x1b[2J\nname" in shown
    assert re.search("What to do.*Use less.", shown)


@pytest.mark.parametrize("job", ["0", "-1", "x", str(2**31)])
def test_an_invalid_job_id_is_wrong_usage(trainctl: Trainctl, job: str) -> None:
    assert trainctl("status", job).exit_code == 2
