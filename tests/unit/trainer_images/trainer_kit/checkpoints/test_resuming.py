"""A damaged checkpoint is skipped, and the one before it is loaded."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.trainers.checkpoints import ALONE_IS_FINE, Start, manifest_of, parts_of

pytestmark = ALONE_IS_FINE


def flip_a_byte(folder: Path) -> None:
    part = parts_of(folder, 3) / "__0_0.distcp"
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)


def cut_a_part_short(folder: Path) -> None:
    part = parts_of(folder, 3) / "__0_0.distcp"
    part.write_bytes(part.read_bytes()[:-1])


def remove_a_part(folder: Path) -> None:
    (parts_of(folder, 3) / ".metadata").unlink()


def remove_all_parts(folder: Path) -> None:
    for part in parts_of(folder, 3).iterdir():
        part.unlink()


def cut_the_manifest_short(folder: Path) -> None:
    manifest = manifest_of(folder, 3)
    manifest.write_bytes(manifest.read_bytes()[:-20])


def empty_the_manifest(folder: Path) -> None:
    manifest_of(folder, 3).write_bytes(b"")


def change_the_format(folder: Path) -> None:
    manifest = manifest_of(folder, 3)
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 2}))


def point_outside(folder: Path) -> None:
    manifest = manifest_of(folder, 3)
    manifest.write_text(manifest.read_text().replace("__0_0.distcp", "../__0_0.distcp"))


def remove_the_manifest(folder: Path) -> None:
    manifest_of(folder, 3).unlink()


DAMAGES = [
    *(flip_a_byte, cut_a_part_short, remove_a_part, remove_all_parts, cut_the_manifest_short),
    *(empty_the_manifest, change_the_format, point_outside),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_checkpoint_is_skipped_with_a_warning(
    start: Start, folder: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], None]
) -> None:
    weights = {}
    with start.attempt() as first:
        for step in (1, 2, 3):
            first.steps(1)
            weights[step] = first.weights
    damage(folder)
    with start.attempt(2) as second:
        assert (second.run.steps, second.weights) == (2, weights[2])
    assert "step-000000000003, which is damaged" in caplog.text


def test_parts_without_a_manifest_are_removed(start: Start, folder: Path) -> None:
    with start.attempt() as first:
        first.steps(3)
    remove_the_manifest(folder)
    with start.attempt(2) as second:
        assert second.run.steps == 2
        assert not list(folder.glob("*.step-000000000003"))


def test_a_damaged_checkpoint_does_not_count_among_those_to_keep(start: Start, folder: Path) -> None:
    with start.attempt(CHECKPOINT_KEEP="2") as first:
        first.steps(3)
    flip_a_byte(folder)
    with start.attempt(2, CHECKPOINT_KEEP="2") as second:
        second.steps(1)
    assert [(each.run.attempt, each.step) for each in start.published] == [(2, 3), (1, 2)]


def test_training_starts_from_the_beginning_if_all_checkpoints_are_damaged(
    start: Start, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with start.attempt(CHECKPOINT_KEEP="1") as first:
        first.steps(3)
    flip_a_byte(folder)
    with start.attempt(2) as second:
        assert second.run.steps == 0
    assert "all 1 checkpoints are damaged: training starts from the beginning" in caplog.text


def test_unrelated_files_are_not_touched(start: Start, folder: Path) -> None:
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    (folder / "attempt-1.json").write_text("also mine")
    with start.attempt(CHECKPOINT_KEEP="1") as training:
        training.steps(3)
    assert (folder / "notes.txt").read_text() == "mine"
    assert (folder / "attempt-1.json").read_text() == "also mine"
