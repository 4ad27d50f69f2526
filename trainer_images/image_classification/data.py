"""The images of a dataset version: `train.npz` and `test.npz`, each with `images` and `labels`."""

from dataclasses import dataclass
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor
from trainer_kit import storage
from trainer_kit.errors import DataError

SPLITS = TRAIN, TEST = "train", "test"
_IMAGE_DIMENSIONS = 4


@dataclass(frozen=True)
class Images:
    """The images of a split."""

    pixels: Tensor
    """N x C x H x W, float32, normalized by the mean and the standard deviation of the training images."""
    labels: Tensor
    """The class of each image: N numbers, int64."""

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> "Images":
        """Return the images on a device."""
        return Images(self.pixels.to(device), self.labels.to(device))


@dataclass(frozen=True)
class Dataset:
    """All images, and the mean and standard deviation by which they were normalized."""

    train: Images
    test: Images
    classes: int
    mean: float
    deviation: float


def load(uri: str) -> Dataset:
    """Load a dataset version, from a folder or an fsspec URI.

    Raises DataError, which names the file, if a file cannot be read or is malformed.
    """
    (pixels, labels), (test_pixels, test_labels) = (_read(uri, split) for split in SPLITS)
    if pixels.shape[1:] != test_pixels.shape[1:]:
        raise DataError(
            f"{TEST}.npz has images of {test_pixels.shape[1:]}, but {TRAIN}.npz of {pixels.shape[1:]}"
        )
    mean, deviation = float(pixels.mean()), float(pixels.std()) or 1.0

    def images(values: np.ndarray, classes: np.ndarray) -> Images:
        normal = (values.astype(np.float32) - np.float32(mean)) / np.float32(deviation)
        return Images(torch.from_numpy(normal), torch.from_numpy(classes.astype(np.int64)))

    return Dataset(
        train=images(pixels, labels),
        test=images(test_pixels, test_labels),
        classes=int(max(labels.max(), test_labels.max())) + 1,
        mean=mean,
        deviation=deviation,
    )


def _read(uri: str, split: str) -> tuple[np.ndarray, np.ndarray]:
    filesystem, folder = storage.locate(uri)
    path = f"{folder}/{split}.npz"
    try:
        with filesystem.open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
            images, labels = file["images"], file["labels"]
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise DataError(f"{path} is not a file of images and labels: {error}") from error
    if images.ndim != _IMAGE_DIMENSIONS or labels.shape != images.shape[:1] or not len(images):
        raise DataError(
            f"{path} has images of shape {images.shape} and labels of shape {labels.shape}, but must have "
            "N x channels x height x width images and N labels"
        )
    if not np.issubdtype(labels.dtype, np.integer) or labels.min() < 0:
        raise DataError(f"{path} must have labels that are whole numbers from 0")
    return images, labels
