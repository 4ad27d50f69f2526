"""Writes the question data to storage, ready for training.

    python -m intent_classification.prepare_data --storage DIR_OR_URI [--fine] [--json]

It writes `examples.csv` and `labels.csv` to `versionedDatasets/<dataset id>/<version>/`. The version is a
hash of both files, so the same data always has the same version, and a second run writes nothing.
"""

import argparse
import csv
import io
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from trainer_kit import dataset_versions
from trainer_kit.errors import TrainingError

from intent_classification import questions
from intent_classification.data import EXAMPLES_FILE, LABELS_FILE
from intent_classification.splits import Split, split_of


@dataclass(frozen=True)
class Prepared:
    """A version of a dataset in storage."""

    dataset_id: str
    version: str
    uri: str
    classes: int
    examples: Mapping[str, int]
    """The number of examples in each split."""


def prepare(labelled: Iterable[tuple[str, str]], storage_uri: str, dataset_id: str) -> Prepared:
    """Write texts and their classes as a version of a dataset, unless this version exists."""
    rows = [(text, label, split_of(text)) for text, label in labelled]
    names = sorted({label for _, label, _ in rows})
    ids = {name: number for number, name in enumerate(names, start=1)}
    files = {
        EXAMPLES_FILE: _csv((text, ids[label], split) for text, label, split in rows),
        LABELS_FILE: _csv((number, name) for name, number in ids.items()),
    }
    version, uri = dataset_versions.publish(files, storage_uri, dataset_id)
    counts = Counter(split for _, _, split in rows)
    return Prepared(dataset_id, version, uri, len(names), {split.value: counts[split] for split in Split})


def _csv(rows: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="prepare_data", description="Write the TREC question data to storage."
    )
    parser.add_argument("--storage", required=True, metavar="DIR_OR_URI", help="a folder, or any fsspec URI")
    parser.add_argument("--dataset-id", default="1", metavar="ID", help="the dataset to write (default: 1)")
    parser.add_argument(
        "--fine", action="store_true", help="use the 50 fine classes instead of the 6 coarse ones"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()

    try:
        labelled = [(each.text, each.fine if options.fine else each.coarse) for each in questions.load()]
        prepared = prepare(labelled, options.storage, options.dataset_id)
    except (TrainingError, OSError) as error:
        sys.exit(f"error: {error}")
    sys.stdout.write(f"{json.dumps(asdict(prepared)) if options.json else _in_words(prepared)}\n")


def _in_words(prepared: Prepared) -> str:
    counts = ", ".join(f"{count:,} {split}" for split, count in prepared.examples.items())
    return (
        f"dataset {prepared.dataset_id}, version {prepared.version}\n"
        f"{counts} questions in {prepared.classes} classes\n"
        f"{prepared.uri}"
    )


if __name__ == "__main__":
    main()
