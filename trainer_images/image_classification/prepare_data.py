"""Writes real images of handwritten digits to storage: 1,797 of 8 x 8 pixels in 10 classes.

    python -m image_classification.prepare_data --storage DIR_OR_URI [--dataset-id digit-images] [--json]

E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998.
The file is part of the package scikit-learn on PyPI. The package is downloaded for this file only, and not
imported or installed.
"""

import argparse
import gzip
import hashlib
import io
import json
import sys

import numpy as np
from trainer_kit import dataset_versions
from trainer_kit.dataset_versions import DatasetVersion
from trainer_kit.errors import TrainingError
from trainer_kit.wheels import WheelFile

from image_classification.data import TEST, TRAIN

FILE = WheelFile(
    package="scikit-learn==1.9.1",
    member="sklearn/datasets/data/digits.csv.gz",
    sha256="09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22",
)
_SIZE = 8
_LARGEST = 16
"""The largest value of a pixel in the file."""
_TEST_SHARE = 0.2


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return N x 1 x 8 x 8 images of bytes, and their digits. Download the file if it is not in the cache."""
    rows = np.loadtxt(io.BytesIO(gzip.decompress(FILE.path().read_bytes())), delimiter=",")
    pixels = np.rint(rows[:, :-1] * (255 / _LARGEST)).astype(np.uint8)
    return pixels.reshape(-1, 1, _SIZE, _SIZE), rows[:, -1].astype(np.int64)


def prepare(storage_uri: str, dataset_id: str) -> DatasetVersion:
    """Write the images as a version of a dataset, unless this version exists.

    Raises DataError if the file of images cannot be downloaded, or does not have the expected hash.
    """
    images, labels = digits()
    is_test = np.array([_is_test(image.tobytes()) for image in images])
    files = {
        f"{split}.npz": _npz(images[chosen], labels[chosen])
        for split, chosen in ((TRAIN, ~is_test), (TEST, is_test))
    }
    return dataset_versions.publish(files, storage_uri, dataset_id)


def _is_test(pixels: bytes) -> bool:
    """Return whether an image is for tests, which depends on its pixels alone."""
    return hashlib.sha256(pixels).digest()[0] < _TEST_SHARE * 256


def _npz(images: np.ndarray, labels: np.ndarray) -> bytes:
    written = io.BytesIO()
    np.savez(written, images=images, labels=labels)
    return written.getvalue()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="prepare_data", description="Write images of digits to storage.")
    parser.add_argument("--storage", required=True, metavar="DIR_OR_URI", help="a folder, or any fsspec URI")
    parser.add_argument(
        "--dataset-id",
        default="digit-images",
        metavar="ID",
        help="the dataset to write (default: digit-images)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    try:
        version, uri = prepare(options.storage, options.dataset_id)
    except (TrainingError, OSError) as error:
        sys.exit(f"error: {error}")
    if options.json:
        sys.stdout.write(
            json.dumps({"dataset_id": options.dataset_id, "version": version, "uri": uri}) + "\n"
        )
    else:
        sys.stdout.write(f"dataset {options.dataset_id}, version {version}\n{uri}\n")


if __name__ == "__main__":
    main()
