"""Reads a dataset: the files `labels.csv` and `examples.csv` of one folder.

`labels.csv` has the columns id and name. `examples.csv` has the columns text, label id and optionally the
split: `train`, `validation` or `test`. Without a split, `split_of` decides. The files have no headers.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from trainer_kit import storage
from trainer_kit.errors import DataError

from intent_classification.splits import Split, split_of

LABELS_FILE, EXAMPLES_FILE = "labels.csv", "examples.csv"


class Example(NamedTuple):
    """A text and its class, as an index into the dataset's labels."""

    text: str
    label: int


@dataclass(frozen=True)
class Dataset:
    """A dataset in memory."""

    labels: Sequence[str]
    """The names of the classes."""
    examples: Mapping[Split, Sequence[Example]]
    """The examples of each split; none is empty."""


def load(uri: str) -> Dataset:
    """Read the dataset in the folder `uri`, any fsspec URI or a plain path.

    Raises DataError, which names the file, if a file cannot be read, a row is malformed or a split has no
    examples. For a malformed row, the error names the line, too.
    """
    names = _read_labels(f"{uri.rstrip('/')}/{LABELS_FILE}")
    indices = {label_id: index for index, label_id in enumerate(names)}
    examples = _read_examples(f"{uri.rstrip('/')}/{EXAMPLES_FILE}", indices)
    return Dataset(tuple(names.values()), examples)


def _read_labels(uri: str) -> dict[str, str]:
    """Read the ids and names of the classes, in the order of the file."""
    names: dict[str, str] = {}
    with _naming_the_file(uri):
        for line, row in _rows(uri):
            if len(row) != 2:
                raise DataError(f"line {line}: expected an id and a name, found {len(row)} columns")
            label_id, name = row
            if label_id in names:
                raise DataError(f"line {line}: the id {label_id!r} is already on an earlier line")
            names[label_id] = name
    return names


def _read_examples(uri: str, indices: Mapping[str, int]) -> dict[Split, list[Example]]:
    """Read the examples of each split, in the order of the file. `indices` has the index of each label id."""
    examples: dict[Split, list[Example]] = {split: [] for split in Split}
    with _naming_the_file(uri):
        for line, row in _rows(uri):
            if len(row) not in (2, 3):
                raise DataError(
                    f"line {line}: expected a text, a label id and perhaps a split, found {len(row)} columns"
                )
            text, label_id, *given = row
            if label_id not in indices:
                raise DataError(f"line {line}: {LABELS_FILE} has no label {label_id!r}")
            if given and given[0] not in set(Split):
                raise DataError(f"line {line}: unknown split {given[0]!r}. Allowed: {', '.join(Split)}")
            split = Split(given[0]) if given else split_of(text)
            examples[split].append(Example(text, indices[label_id]))
        for split, found in examples.items():
            if not found:
                raise DataError(f"the split {split.value!r} has no examples")
    return examples


def _rows(uri: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each row of a CSV file with the number of its last line. Empty lines are skipped."""
    filesystem, path = storage.locate(uri)
    with filesystem.open(path, "r", encoding="utf-8", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            for row in reader:
                if row:
                    yield reader.line_num, row
        except csv.Error as error:
            raise DataError(f"line {reader.line_num}: {error}") from error


@contextmanager
def _naming_the_file(uri: str) -> Iterator[None]:
    """Turn any error of reading `uri` into a DataError that names `uri`."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"{uri} does not exist") from error
    except OSError as error:
        raise DataError(f"cannot read {uri}: {error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{uri} is not UTF-8 text: {error}") from error
    except DataError as error:
        raise DataError(f"{uri}: {error}") from error
