"""Published checkpoints survive any failing call to storage; older ones are removed only after that."""

import logging
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from trainer_kit.checkpoints import resuming
from trainer_kit.checkpoints.folder import CheckpointFolder
from trainer_kit.checkpoints.manifest import Manifest, Part
from trainer_kit.checkpoints.names import Checkpoint

from tests.support.trainers.checkpoints import ALONE_IS_FINE, Start, files_below
from tests.support.trainers.counted import CountedFileSystem, Faults, failing

pytestmark = ALONE_IS_FINE
ONE = {"CHECKPOINT_KEEP": "1"}
KINDS = [(after, lasting) for after in (False, True) for lasting in (False, True)]
IDS = [f"{'after' if after else 'before'}-{'for good' if lasting else 'once'}" for after, lasting in KINDS]
RESTART_POINT = re.compile(
    r"a restart would resume from (?:step (\d+)|the start of this attempt)(.*?)\)", re.DOTALL
)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resuming, "PAUSES", (0.01, 0.01))


@pytest.mark.parametrize(("after", "lasting"), KINDS, ids=IDS)
def test_after_any_failing_call_a_restart_finds_the_new_or_the_old_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    after: bool,
    lasting: bool,
) -> None:
    outcomes = set()
    for number in range(1, 1000):
        caplog.clear()
        start = Start(monkeypatch, f"counted://{tmp_path}/{number}")
        weights = {}
        with start.attempt(1, **ONE) as training:
            training.steps(1)
            weights[1] = training.weights
            with failing(Faults(number, after, lasting)) as faults:
                training.steps(1)
                weights[2] = training.weights
                expected = restart_points(caplog)
        if not faults.have_struck:
            break
        with start.attempt(2, **ONE) as resumed:
            found = resumed.run.steps
            assert found in (1, 2), faults.calls
            assert resumed.weights == weights[found]
            assert found in expected, faults.calls
            resumed.steps(1)
        assert start.published_steps == [found + 1], "leftovers are removed"
        outcomes.add((faults.calls[number - 1], found))
    assert number > 15
    assert {name for name, _ in outcomes} >= {"_open", "pipe_file", "fsync", "mv", "ls", "rm_file", "rm"}
    assert ("mv", 2 if after else 1) in outcomes
    assert ("rm", 2) in outcomes


def restart_points(caplog: pytest.LogCaptureFixture) -> set[int]:
    """Return the steps from which a restart may resume, by the last log line about that."""
    for record in reversed(caplog.records):
        if record.levelno == logging.WARNING and (found := RESTART_POINT.search(record.getMessage())):
            steps = {int(step) for step in re.findall(r"step (\d+)", found[0])}
            return steps or {0}
    return {2}


def test_after_any_failing_call_later_saves_succeed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for number in range(1, 1000):
        start = Start(monkeypatch, f"counted://{tmp_path}/{number}")
        with start.attempt(1, **ONE) as training:
            training.steps(1)
            with failing(Faults(number, after=True, lasting=False)) as faults:
                training.steps(1)
            training.steps(1)
        if not faults.have_struck:
            break
        [published] = start.published
        assert published.step == 3
        names = {
            path.relative_to(tmp_path / str(number)).parts[0] for path in files_below(tmp_path / str(number))
        }
        assert names == {str(published), published.manifest, published.run.fence}


def test_a_checkpoint_whose_publication_is_in_doubt_is_not_overwritten(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # The rename succeeds, but its answer is lost, and storage stays away for a while.
    start = Start(monkeypatch, f"counted://{tmp_path}/checkpoints")
    with start.attempt(1, **ONE) as training:
        training.steps(1)
        with failing(Faults(moving(start, tmp_path), after=True, lasting=True)) as faults:
            training.steps(1)
        assert faults.calls[faults.number - 1] == "mv"
        assert "resume from step 2 if its manifest is in storage, or else step 1)" in caplog.text
        assert start.published_steps == [2, 1]
        before = {path: path.stat().st_mtime_ns for path in files_below(tmp_path / "checkpoints")}
        saver = training.run._saver  # type: ignore[attr-defined]
        saver.start(2)
        saver.wait()
        assert (saver.newest.step, saver.failures) == (2, 0)
        assert {path: path.stat().st_mtime_ns for path in before} == before
        training.steps(1)
    assert start.published_steps == [3]


def moving(start: Start, tmp_path: Path) -> int:
    """Return the number of the call of a save that renames the manifest."""
    with pytest.MonkeyPatch.context() as patch:
        other = Start(patch, f"counted://{tmp_path}/other")
        with other.attempt(1, **ONE) as training, failing(Faults(1000, False, False)) as faults:
            training.steps(1)
    # The first rename is that of the list of tensors, which is one of the parts.
    return len(faults.calls) - faults.calls[::-1].index("mv")


def test_a_published_checkpoint_is_never_discarded(start: Start) -> None:
    folder = CheckpointFolder(start.uri)
    checkpoint = Checkpoint(folder.begin(1), 1)
    folder.filesystem.makedirs(folder.path_of(checkpoint))
    folder.publish(checkpoint, Manifest(1, {"part": Part(0, "")}))
    folder.discard(checkpoint)
    folder.remove_leftovers(checkpoint.run)
    assert folder.filesystem.exists(folder.path_of(checkpoint))


def test_older_checkpoints_are_removed_only_after_the_new_one_is_on_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "above" / "checkpoints"
    start = Start(monkeypatch, f"counted://{folder}")
    events: list[tuple[str, str]] = []
    fsync, move, remove = os.fsync, CountedFileSystem.mv, CountedFileSystem.rm_file

    def noted_fsync(number: int) -> None:
        fsync(number)
        kind = "folder" if stat.S_ISDIR(os.fstat(number).st_mode) else "file"
        events.append((f"sync {kind}", str(Path(f"/proc/self/fd/{number}").readlink())))

    def noted_move(self: CountedFileSystem, path: str, new_path: str, **options: Any) -> None:
        move(self, path, new_path, **options)
        events.append(("move", new_path))

    def noted_remove(self: CountedFileSystem, path: str) -> None:
        remove(self, path)
        events.append(("remove", path))

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(CountedFileSystem, "mv", noted_move)
    monkeypatch.setattr(CountedFileSystem, "rm_file", noted_remove)
    with start.attempt(1, **ONE) as training:
        assert events == [("sync folder", str(tmp_path / "above")), ("sync folder", str(tmp_path))]
        training.steps(1)
        [old] = start.published
        events.clear()
        training.steps(1)
    [new] = start.published
    parts = folder / str(new)
    in_order = [
        ("sync file", str(parts / "manifest.partial")),
        ("sync folder", str(parts)),
        ("move", str(folder / new.manifest)),
        ("sync folder", str(folder)),
        ("remove", str(folder / old.manifest)),
    ]
    assert events[-len(in_order) :] == in_order
    assert {("sync file", str(parts / name)) for name in ("__0_0.distcp", ".metadata.tmp")} <= set(events)


def test_a_folder_that_cannot_be_synced_is_accepted(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def only_files(number: int) -> None:
        if stat.S_ISDIR(os.fstat(number).st_mode):
            raise OSError(22, "Invalid argument")
        fsync(number)

    monkeypatch.setattr(os, "fsync", only_files)
    with start.attempt(1, **ONE) as training:
        training.steps(2)
    assert start.published_steps == [2]
