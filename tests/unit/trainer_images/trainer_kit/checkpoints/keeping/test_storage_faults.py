"""Storage that is unavailable, read-only or full: saving fails, but training continues."""

import signal
import time
from pathlib import Path

import pytest
from trainer_kit.checkpoints import resuming
from trainer_kit.errors import StorageError
from trainer_kit.termination import Terminated

from tests.support.trainers.checkpoints import (
    ALONE_IS_FINE,
    FaultyFileSystem,
    Start,
    files_below,
)

pytestmark = ALONE_IS_FINE

REASONS = {
    "away": "no route to the storage",
    "read-only": "Read-only file system",
    "full": "No space left on device",
}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resuming, "PAUSES", (0.01, 0.01))


@pytest.mark.parametrize("fault", REASONS)
def test_training_goes_on_without_storage_and_saves_when_it_is_back(
    faulty: Start, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    with faulty.attempt() as training:
        training.steps(1)
        FaultyFileSystem.fault = fault
        training.steps(2)
        assert "could not save the checkpoint of step 3 (2 in a row; a restart would resume from step 1)" in (
            caplog.text
        )
        assert REASONS[fault] in caplog.text
        FaultyFileSystem.fault = ""
        assert faulty.published_steps == [1]
        training.steps(1)
    assert faulty.published_steps == [4, 1]
    with faulty.attempt(2) as resumed:
        assert (resumed.run.steps, resumed.weights) == (4, training.weights)


@pytest.mark.parametrize("fault", REASONS)
def test_a_save_that_fails_during_the_notice_ends_as_usual_and_the_next_attempt_goes_on_from_an_earlier_one(
    faulty: Start, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    with pytest.raises(Terminated), faulty.attempt() as training:  # noqa: PT012
        training.steps(2)
        kept = training.weights
        FaultyFileSystem.fault = fault
        signal.raise_signal(signal.SIGTERM)
        training.steps(1)
        pytest.fail("the step after SIGTERM does not return")
    assert "could not save the checkpoint of step 3" in caplog.text
    FaultyFileSystem.fault = ""
    with faulty.attempt(2) as resumed:
        assert (resumed.run.steps, resumed.weights) == (2, kept)


def test_a_failed_save_leaves_no_files(faulty: Start, folder: Path) -> None:
    with faulty.attempt() as training:
        training.steps(1)
        before = files_below(folder)
        FaultyFileSystem.fault = "full"
        training.steps(3)
        assert files_below(folder) == before


def test_a_restart_waits_for_storage_then_gives_up(faulty: Start) -> None:
    with faulty.attempt() as training:
        training.steps(1)
    FaultyFileSystem.fault = "away"
    with pytest.raises(StorageError, match="no route to the storage"), faulty.attempt(2):
        pytest.fail("it must not begin anew: the checkpoints may be back soon")


def test_a_restart_continues_when_storage_is_back_in_time(
    faulty: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    with faulty.attempt() as training:
        training.steps(1)
    FaultyFileSystem.fault = "away"
    monkeypatch.setattr(time, "sleep", lambda _pause: setattr(FaultyFileSystem, "fault", ""))
    with faulty.attempt(2) as resumed:
        assert resumed.run.steps == 1


def test_read_only_storage_is_reported_at_the_start(faulty: Start) -> None:
    FaultyFileSystem.fault = "read-only"
    with pytest.raises(StorageError, match="Read-only file system"), faulty.attempt():
        pytest.fail("a day of training would be lost")


def test_an_unknown_kind_of_storage_is_reported(start: Start) -> None:
    with (
        pytest.raises(StorageError, match="cannot use nowhere://x"),
        start.attempt(CHECKPOINT_URI="nowhere://x"),
    ):
        pytest.fail("there is nowhere to save")
