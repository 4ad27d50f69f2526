"""trainctl list, in a pipe, as JSON and on a terminal."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.trainctl import HOSTILE, metadata
from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from tests.support.fake_service import ServerInThread
    from tests.support.trainctl import Trainctl


def test_list_prints_one_line_per_job_in_a_pipe(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(1, metadata=metadata("a"), instances=1)
    training.set_job(2, metadata=metadata(HOSTILE), status=pb.running, instances=2)
    assert (
        trainctl("list").stdout
        == "2\trunning\tbert\t[red]evil\\x1b[2J\\nname\t2\t\t\t\t\n1\tqueuing\tbert\ta\t1\t\t\t\t\n"
    )


def test_list_prints_one_json_object_per_line(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(1, metadata=metadata(HOSTILE), progress=pb.Progress(step=3))
    training.set_job(2, status=pb.cancelled)
    newest, oldest = map(json.loads, trainctl("list", "--json").stdout.splitlines())
    assert (newest["job_id"], newest["status"]) == (2, "cancelled")
    assert (oldest["status"], oldest["positionInQueue"]) == ("queuing", 0)
    assert oldest["metadata"]["name"] == HOSTILE
    assert oldest["progress"]["step"] == "3"


def test_list_draws_a_table_on_a_terminal(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(12, metadata=metadata(HOSTILE), status=pb.running)
    heading, row = trainctl.on_terminal("list").stdout.splitlines()
    assert re.findall(r"[A-Z]{2,}", heading)[:3] == ["JOB", "STATUS", "ALGORITHM"]
    assert re.search(r"12.*running.*bert.*\[red\]evil\\x1b\[2J", row)


def test_list_filters(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(1, metadata=metadata("nightly-1"), status=pb.running)
    training.set_job(2, metadata=metadata("nightly-2"), status=pb.succeed)
    training.set_job(3, metadata=metadata("nightly-3"), status=pb.queuing)
    training.set_job(4, metadata=metadata("other"), status=pb.running)
    result = trainctl(
        "list", "--state", "running", "--state", "queuing", "--name", "nightly", "--algorithm", "bert"
    )
    assert [line.split("\t")[0] for line in result.stdout.splitlines()] == ["3", "1"]


def test_list_is_of_one_project_unless_all_are_wanted(
    training: ServerInThread, trainctl: Trainctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    training.set_job(1, metadata=metadata("a"), project="vision", submitted_by="ada")
    training.set_job(2, metadata=metadata("b"), project="speech", submitted_by="bob")
    trainctl("list")
    trainctl("--project", "vision", "list")
    trainctl("list", "--project", "speech", "--all-projects")
    monkeypatch.setenv("TRAINING_PROJECT", "audio")
    trainctl("list", "-A")
    assert training.service.projects == ["", "vision", "speech", "audio"]
    assert [each.all_projects for each in training.service.requests] == [False, False, True, True]
    assert trainctl("list", "--by", "ada").stdout == "1\tqueuing\tbert\ta\t0\t\tvision\tada\t\n"


def test_a_table_of_all_projects_shows_the_project(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(1, metadata=metadata("a"), project="vision")
    heading, row = trainctl.on_terminal("list", "-A").stdout.splitlines()
    assert re.findall(r"[A-Z]{2,}", heading)[:3] == ["JOB", "STATUS", "PROJECT"]
    assert re.search("1.*queuing.*vision.*bert", row)
    assert "PROJECT" not in trainctl.on_terminal("list").stdout


def test_list_reads_all_pages_and_reports_further_jobs(training: ServerInThread, trainctl: Trainctl) -> None:
    for job_id in range(1, 1203):
        training.service.jobs[job_id] = pb.GetTrainingStatusResponse(job_id=job_id)
    result = trainctl("list", "--limit", "1200")
    assert len(result.stdout.splitlines()) == 1200
    assert "more than 1200 jobs" in result.stderr
    assert len(training.service.requests) == 2
    assert trainctl("list", "--limit", "1202").stderr == ""


def test_list_of_nothing_is_nothing_in_a_pipe(trainctl: Trainctl) -> None:
    result = trainctl("list")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_list_names_the_states_that_there_are(trainctl: Trainctl) -> None:
    result = trainctl("list", "--state", "paused")
    assert result.exit_code == 2
    assert "cancelled" in result.stderr


def test_list_sends_times_and_mine(training: ServerInThread, trainctl: Trainctl) -> None:
    trainctl("list", "--since", "2026-11-20T10:00Z", "--until", "2026-11-21", "--mine")
    request = training.service.requests[-1]
    assert request.submitted_since.ToJsonString() == "2026-11-20T10:00:00Z"
    assert request.submitted_before.ToJsonString() == "2026-11-21T00:00:00Z", "local time"
    assert request.mine
    trainctl("list", "--since", "2h")
    ago = time.time() - training.service.requests[-1].submitted_since.ToSeconds()
    assert 7199 < ago < 7260
    assert "2h or 7d ago" in trainctl("list", "--since", "yesterday").stderr
    assert trainctl("list", "--mine", "--by", "ada").exit_code == 2


def test_list_continues_before_a_job(training: ServerInThread, trainctl: Trainctl) -> None:
    for job_id in range(1, 6):
        training.set_job(job_id)
    first = trainctl("list", "-q", "--limit", "2")
    assert first.stdout == "5\n4\n"
    noted = trainctl("list", "--limit", "2").stderr
    assert "--before 4 shows the next jobs" in noted
    assert trainctl("list", "-q", "--before", "4").stdout == "3\n2\n1\n"
