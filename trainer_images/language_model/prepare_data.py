"""Writes the corpus to storage, ready for training.

    python -m language_model.prepare_data --storage DIR_OR_URI [--json]

It writes `train.txt` and `validation.txt`, files of blocks of equal length, to
`versionedDatasets/<dataset id>/<version>/`. The version is a hash of both, so a second run writes nothing.
"""

import argparse
import json
import sys
from dataclasses import asdict, dataclass

from trainer_kit import dataset_versions
from trainer_kit.errors import TrainingError

from language_model import corpus
from language_model.data import TRAIN_FILE, VALIDATION_FILE


@dataclass(frozen=True)
class Prepared:
    """A version of the corpus in storage."""

    dataset_id: str
    version: str
    uri: str
    train_bytes: int
    validation_bytes: int


def prepare(text: bytes, storage_uri: str, dataset_id: str) -> Prepared:
    """Write the text as a version of a dataset, unless that version exists."""
    train, validation = (b"".join(blocks) for blocks in corpus.blocks_of(text))
    files = {TRAIN_FILE: train, VALIDATION_FILE: validation}
    version, uri = dataset_versions.publish(files, storage_uri, dataset_id)
    return Prepared(dataset_id, version, uri, len(train), len(validation))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="prepare_data", description="Write the corpus to storage.")
    parser.add_argument("--storage", required=True, metavar="DIR_OR_URI", help="a folder, or any fsspec URI")
    parser.add_argument(
        "--dataset-id", default="dialog", metavar="ID", help="the dataset to write (default: dialog)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()

    try:
        prepared = prepare(corpus.FILE.path().read_bytes(), options.storage, options.dataset_id)
    except (TrainingError, OSError) as error:
        sys.exit(f"error: {error}")
    sys.stdout.write(f"{json.dumps(asdict(prepared)) if options.json else _in_words(prepared)}\n")


def _in_words(prepared: Prepared) -> str:
    return (
        f"dataset {prepared.dataset_id}, version {prepared.version}\n"
        f"{prepared.train_bytes:,} bytes for training, {prepared.validation_bytes:,} for validation\n"
        f"{prepared.uri}"
    )


if __name__ == "__main__":
    main()
