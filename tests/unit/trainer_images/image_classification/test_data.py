"""The digits that are prepared, and files that cannot be used."""

import io
from pathlib import Path

import numpy as np
import pytest
from image_classification import data, prepare_data
from image_classification.data import load
from trainer_kit.errors import DataError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for split in data.SPLITS:
        write(tmp_path, split, np.arange(64, dtype=np.uint8).reshape(4, 1, 4, 4), np.array([0, 1, 2, 1]))
    return tmp_path


def write(folder: Path, split: str, images: np.ndarray, labels: np.ndarray) -> None:
    written = io.BytesIO()
    np.savez(written, images=images, labels=labels)
    (folder / f"{split}.npz").write_bytes(written.getvalue())


def test_the_digits_are_real_and_no_image_is_in_both_splits(tmp_path: Path) -> None:
    version = prepare_data.prepare(str(tmp_path), "digit-images")
    found = load(version.uri)
    assert (found.classes, found.train.pixels.shape[1:]) == (10, (1, 8, 8))
    assert len(found.train) + len(found.test) == 1797
    assert 0.15 < len(found.test) / 1797 < 0.25
    both = {image.numpy().tobytes() for image in found.train.pixels}
    assert not both & {image.numpy().tobytes() for image in found.test.pixels}
    assert found.train.pixels.mean().abs() < 1e-5
    assert prepare_data.prepare(str(tmp_path), "digit-images") == version


def test_images_are_normalized_by_those_for_training(folder: Path) -> None:
    found = load(str(folder))
    assert found.classes == 3
    assert found.mean == pytest.approx(31.5)
    assert float(found.test.pixels[0, 0, 0, 0]) == pytest.approx(-31.5 / found.deviation)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (np.zeros((4, 4, 4)), np.zeros(4, int), r"images of shape \(4, 4, 4\)"),
        (np.zeros((4, 1, 4, 4)), np.zeros(3, int), r"labels of shape \(3,\)"),
        (np.zeros((0, 1, 4, 4)), np.zeros(0, int), "but must have"),
        (np.zeros((1, 1, 4, 4)), np.array([-1]), "whole numbers from 0"),
        (np.zeros((1, 1, 4, 4)), np.array([0.5]), "whole numbers from 0"),
        (np.zeros((1, 1, 5, 4)), np.array([0]), r"test.npz has images of \(1, 5, 4\), but train.npz"),
    ],
)
def test_other_arrays_are_refused(folder: Path, images: np.ndarray, labels: np.ndarray, message: str) -> None:
    write(folder, "test", images, labels)
    with pytest.raises(DataError, match=message):
        load(str(folder))


@pytest.mark.parametrize("content", [None, b"", b"not an archive", b"PK\x03\x04 cut off"])
def test_a_file_that_is_missing_or_damaged_is_named(folder: Path, content: bytes | None) -> None:
    (folder / "train.npz").unlink() if content is None else (folder / "train.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"train\.npz is not a file of images and labels"):
        load(str(folder))


def test_no_object_of_a_file_is_unpickled(folder: Path) -> None:
    write(folder, "train", np.array([{}], dtype=object), np.array([0]))
    with pytest.raises(DataError, match="allow_pickle=False"):
        load(str(folder))
