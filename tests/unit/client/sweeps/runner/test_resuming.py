"""A resumed sweep has no lost or repeated trials."""

from __future__ import annotations

import json
import signal
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.support.fake_service import ENDED
from tests.support.patience import PATIENCE
from tests.support.sweeps import FILE, settings
from training_service._generated import training_service_pb2 as pb
from training_service.client import FailedPrecondition, InvalidRequest, TrainingClient
from training_service.client.sweeps import folder as folders
from training_service.client.sweeps.folder import Journal
from training_service.client.sweeps.runner import Runner

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.fake_service import ServerInThread
    from tests.support.sweeps import Trainer
    from tests.support.trainctl import Trainctl
    from training_service.client.sweeps.events import Event

FAST = ("--every", "0.01")
PRUNED = FILE.replace("0, 1, 2, 3, 5", "3, 0, 5, 2") + "[pruning]\nmin_steps = 1\nreduction_factor = 2\n"


def rows(printed: str) -> dict[int, dict[str, Any]]:
    return {row["trial"]: row for row in map(json.loads, printed.splitlines())}


class Killed(BaseException):
    """Simulates a kill: no code handles it."""


class KilledJournal(Journal):
    """Raises Killed at the given event, before or after writing it."""

    def __init__(self, original: Journal, at: int, *, after: bool) -> None:
        self.__dict__ = original.__dict__
        self._left, self._after = at, after

    def append(self, event: Event) -> None:
        self._left -= 1
        if self._left == 0 and not self._after:
            raise Killed
        super().append(event)
        if self._left == 0:
            raise Killed


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_at_any_event_changes_nothing_about_the_trials(
    training: ServerInThread, trainer: Trainer, tmp_path: Path, after: bool
) -> None:
    """Kill the same sweep again and again, after one, two or three further events."""
    folders.create(tmp_path, settings(pruning={"min_steps": 1, "reduction_factor": 2}), training.address)
    kills = 0
    with TrainingClient(training.address) as client:
        while True:
            with folders.opened(tmp_path) as journal:
                runner = Runner(
                    client, KilledJournal(journal, 1 + kills % 3, after=after), pause=lambda _: None
                )
                kills += 1
                with suppress(Killed):
                    runner.run()
                    break
    assert kills > 5
    trials = runner.history.trials
    assert [trial.parameters for trial in trials] == [{"X": x} for x in (0, 1, 2, 3, 5)]
    assert len(training.service.jobs) == 5
    assert sorted(trial.job or 0 for trial in trials) == [1, 2, 3, 4, 5]
    assert all(job.status in ENDED for job in training.service.jobs.values())
    assert {trial.state for trial in trials} <= {"complete", "pruned"}


@pytest.mark.parametrize(
    ("request_name", "number", "after_effect"),
    [
        ("TrainRequest", 1, False),
        ("TrainRequest", 1, True),
        ("TrainRequest", 3, True),
        ("GetTrainingStatusRequest", 2, False),
        ("GetTrainingMetricsRequest", 1, False),
        ("CancelTrainingRequest", 1, False),
    ],
)
def test_a_killed_sweep_is_resumed_without_lost_or_repeated_trials(
    trainctl: Trainctl, trainer: Trainer, file: Path, request_name: str, number: int, after_effect: bool
) -> None:
    file.write_text(PRUNED)
    left = number
    process: Future[subprocess.Popen[str]] = Future()

    def kill(request: str, after: bool) -> None:
        nonlocal left
        left -= (request, after) == (request_name, after_effect)
        if left == 0:
            process.result(PATIENCE).kill()

    trainer.when = kill
    with trainctl.process("sweep", "search.toml", *FAST, cwd=file.parent) as made:
        process.set_result(made)
        assert made.wait(timeout=PATIENCE) == -signal.SIGKILL
    trainer.when = lambda request, after: None
    result = trainctl("sweep", "search.sweep", "--resume", *FAST, "--json")
    assert result.exit_code == 0, result.stderr
    found = rows(result.stdout)
    assert [found[trial]["parameters"]["X"] for trial in range(4)] == [3, 0, 5, 2]
    assert len(trainer.service.jobs) == len(trainer.keys) == 4
    assert {row["job_id"] for row in found.values()} == {1, 2, 3, 4}
    assert found[0]["state"] == "complete"
    assert "pruned" in {row["state"] for row in found.values()}
    assert all(job.status in ENDED for job in trainer.service.jobs.values())


def test_an_interrupted_sweep_makes_the_same_trials(trainctl: Trainctl, trainer: Trainer, file: Path) -> None:
    file.write_text(FILE.replace("[0, 1, 2, 3, 5]", "{low = 0.0, high = 5.0}").replace("grid", "random"))
    options = ("--trials", "5")
    whole = trainctl("sweep", "search.toml", *options, *FAST, "--json", "--folder", "whole")
    _interrupt_at_third_job(trainctl, trainer, file, *options)
    resumed = trainctl("sweep", "--resume", "search.sweep", *FAST, "--json")
    assert [row["parameters"] for _, row in sorted(rows(resumed.stdout).items())] == [
        row["parameters"] for _, row in sorted(rows(whole.stdout).items())
    ]


def _projects_of(trainer: Trainer) -> set[str]:
    """The projects of the submissions and of the lists."""
    service = trainer.service
    scoped = (pb.TrainRequest, pb.ListTrainingJobsRequest)
    pairs = zip(service.requests, service.projects, strict=True)
    return {project for request, project in pairs if isinstance(request, scoped)}


@pytest.mark.parametrize("default", ["", "speech"])
def test_a_sweep_goes_on_in_its_project(
    trainctl: Trainctl, trainer: Trainer, file: Path, monkeypatch: pytest.MonkeyPatch, default: str
) -> None:
    monkeypatch.setenv("TRAINING_PROJECT", "vision")
    _interrupt_at_third_job(trainctl, trainer, file)
    monkeypatch.setenv("TRAINING_PROJECT", default)
    resumed = trainctl("sweep", "--resume", "search.sweep", *FAST)
    assert resumed.exit_code == 0, resumed.stderr
    assert len(trainer.service.jobs) == 5
    assert _projects_of(trainer) == {"vision"}
    remark = "the sweep in search.sweep goes on in its project, vision"
    assert (remark in resumed.stderr) == bool(default)


def test_a_sweep_of_an_earlier_version_goes_on_in_the_project_of_the_caller(
    trainctl: Trainctl, trainer: Trainer, file: Path
) -> None:
    _interrupt_at_third_job(trainctl, trainer, file)
    record = file.parent / "search.sweep" / "sweep.json"
    before = json.loads(record.read_text())
    assert before.pop("project") == "", "this service does not say what the default project is"
    record.write_text(json.dumps(before))
    resumed = trainctl("--project", "vision", "sweep", "--resume", "search.sweep", *FAST)
    assert resumed.exit_code == 0, resumed.stderr
    assert "vision" in _projects_of(trainer)


def _interrupt_at_third_job(
    trainctl: Trainctl, trainer: Trainer, file: Path, *options: str
) -> tuple[int, str]:
    """Interrupt a sweep after its third job. Return the exit code and standard error."""
    third, most = threading.Event(), len(trainer.keys) + 3
    trainer.when = lambda request, after: third.set() if len(trainer.keys) == most else None
    with trainctl.process("sweep", "search.toml", *options, "--every", "60", cwd=file.parent) as process:
        assert third.wait(PATIENCE)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    trainer.when = lambda request, after: None
    return process.returncode, err


def test_ctrl_c_leaves_the_jobs_and_prints_how_to_resume(
    trainctl: Trainctl, trainer: Trainer, file: Path
) -> None:
    code, err = _interrupt_at_third_job(trainctl, trainer, file)
    assert code == 130
    assert "To resume the sweep: trainctl sweep search.sweep --resume." in err
    assert "To cancel it: trainctl sweep search.sweep --cancel" in err
    assert all(job.status not in ENDED for job in trainer.service.jobs.values())


def test_cancel_also_cancels_a_job_that_was_not_recorded(
    training: ServerInThread, trainctl: Trainctl, trainer: Trainer, file: Path
) -> None:
    process: Future[subprocess.Popen[str]] = Future()

    def kill(request: str, after: bool) -> None:
        if request == "TrainRequest" and after and len(trainer.keys) == 2:
            process.result(PATIENCE).kill()

    trainer.when = kill
    with trainctl.process("sweep", "search.toml", "--every", "60", cwd=file.parent) as made:
        process.set_result(made)
        made.wait(timeout=PATIENCE)
    trainer.when = lambda request, after: None
    training.set_job(7, metadata=pb.TrainingJobMetadata(name="another's"))
    result = trainctl("sweep", "search.sweep", "--cancel", "--json")
    assert result.exit_code == 0, result.stderr
    assert {row["state"] for row in rows(result.stdout).values()} == {"cancelled"}
    assert [training.service.jobs[job].status for job in (1, 2, 7)] == [
        pb.cancelled,
        pb.cancelled,
        pb.queuing,
    ]
    again = trainctl("sweep", "search.sweep", "--resume", *FAST)
    assert "is cancelled and cannot be resumed" in again.stderr
    assert len(trainer.keys) == 2


def test_jobs_of_others_are_not_touched(
    training: ServerInThread, trainctl: Trainctl, trainer: Trainer, file: Path
) -> None:
    training.fail(pb.GetTrainingStatusRequest, grpc.StatusCode.INTERNAL, "oh")
    assert trainctl("sweep", "search.toml", *FAST).exit_code == 8
    training.service.jobs[1].metadata.name = "another's"
    for way in ("--cancel", "--resume"):
        result = trainctl("sweep", "search.sweep", way, *FAST)
        assert result.exit_code == 7
        assert "is not trial 0 of this sweep" in result.stderr
    assert not any(isinstance(request, pb.CancelTrainingRequest) for request in training.service.requests)


def test_a_sweep_survives_an_outage_of_the_service(
    training: ServerInThread, trainctl: Trainctl, trainer: Trainer, file: Path
) -> None:
    training.fail(pb.GetTrainingStatusRequest, grpc.StatusCode.DEADLINE_EXCEEDED, times=2)
    result = trainctl("sweep", "search.toml", *FAST)
    assert (result.exit_code, len(trainer.keys)) == (0, 5), result.stderr


@pytest.mark.usefixtures("fast_failing")
def test_an_unreachable_service_is_reported(
    trainctl_at: Callable[[str], Trainctl], file: Path, dead_address: str
) -> None:
    result = trainctl_at(dead_address)("sweep", "search.toml", *FAST)
    assert result.exit_code == 4
    assert (
        "TRAINING_SERVICE_ADDRESS. The submitted jobs go on. To resume the sweep: trainctl sweep"
        in result.stderr
    )
    assert (file.parent / "search.sweep").is_dir()


def test_two_programs_cannot_run_the_same_sweep(trainctl: Trainctl, trainer: Trainer, file: Path) -> None:
    folders.create(file.parent / "search.sweep", settings(), "nowhere:1")
    with folders.opened(file.parent / "search.sweep"):
        result = trainctl("sweep", "search.sweep", "--resume")
        assert (result.exit_code, "another program runs the sweep" in result.stderr) == (7, True)
    assert "already contains a sweep" in trainctl("sweep", "search.toml").stderr


def test_an_incomplete_last_line_is_dropped_and_a_damaged_line_is_reported(tmp_path: Path) -> None:
    folders.create(tmp_path, settings(), "nowhere:1")
    journal = tmp_path / "trials.jsonl"
    whole = '{"event":"proposed","trial":0,"parameters":{"X":1}}\n'
    journal.write_text(whole + '{"event":"subm')
    with folders.opened(tmp_path) as opened:
        assert [event.event for event in opened.events] == ["proposed"]
    assert journal.read_text() == whole
    journal.write_text("nonsense\n" + whole)
    with pytest.raises(InvalidRequest, match=r"line 1 of .* is damaged"):
        folders.read(tmp_path)


def test_a_folder_with_a_draft_gets_a_new_sweep(tmp_path: Path) -> None:
    (tmp_path / "sweep.json.draft").write_text("{")
    folders.create(tmp_path, settings(), "nowhere:1")
    with pytest.raises(FailedPrecondition, match="already contains a sweep"):
        folders.create(tmp_path, settings(), "nowhere:1")
