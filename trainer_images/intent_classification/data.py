"""Reading a data set: the files `labels.csv` and `examples.csv` of one folder.

`labels.csv` holds `id,name`, and `examples.csv` holds `text,label id` and then, if it likes, the
split: `train`, `validation` or `test`. Where that is left out, `split_of` decides. No headers.
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
    """A text and its class, as an index into the data set's labels."""

    text: str
    label: int


@dataclass(frozen=True)
class Dataset:
    """A whole data set, in memory."""

    labels: Sequence[str]
    """The names of the classes."""
    examples: Mapping[Split, Sequence[Example]]
    """The examples of each split; none is empty."""


def load(uri: str) -> Dataset:
    """Reads the data set in the folder `uri`, any fsspec URI or a plain path.

    Raises DataError, naming the file and the line, when a file is missing or a row is malformed.
    """
    names = _read_labels(f"{uri.rstrip('/')}/{LABELS_FILE}")
    indices = {label_id: index for index, label_id in enumerate(names)}
    examples = _read_examples(f"{uri.rstrip('/')}/{EXAMPLES_FILE}", indices)
    return Dataset(tuple(names.values()), examples)


def _read_labels(uri: str) -> dict[str, str]:
    """The name of each class by its id, in the file's order."""
    names: dict[str, str] = {}
    with _naming_the_file(uri):
        for line, row in _rows(uri):
            if len(row) != 2:
                raise DataError(f"line {line}: expected an id and a name, found {len(row)} columns")
            label_id, name = row
            if label_id in names:
                raise DataError(f"line {line}: the id {label_id!r} stands on an earlier line too")
            names[label_id] = name
    return names


def _read_examples(uri: str, indices: Mapping[str, int]) -> dict[Split, list[Example]]:
    """The examples of each split, in the file's order; `indices` says which label ids there are."""
    examples: dict[Split, list[Example]] = {split: [] for split in Split}
    with _naming_the_file(uri):
        for line, row in _rows(uri):
            if len(row) not in (2, 3):
                raise DataError(
                    f"line {line}: expected a text, a label id and a split, found {len(row)} columns"
                )
            text, label_id, *given = row
            if label_id not in indices:
                raise DataError(f"line {line}: {LABELS_FILE} has no label {label_id!r}")
            if given and given[0] not in set(Split):
                raise DataError(f"line {line}: {given[0]!r} is no split; there are {', '.join(Split)}")
            split = Split(given[0]) if given else split_of(text)
            examples[split].append(Example(text, indices[label_id]))
        for split, found in examples.items():
            if not found:
                raise DataError(f"no example is in the split {split.value!r}")
    return examples


def _rows(uri: str) -> Iterator[tuple[int, list[str]]]:
    """Each row of a CSV file with the number of its last line; empty lines are passed over."""
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
    """Makes whatever goes wrong in reading `uri` an error that names it."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"there is no {uri}") from error
    except OSError as error:
        raise DataError(f"cannot read {uri}: {error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{uri} is not UTF-8 text: {error}") from error
    except DataError as error:
        raise DataError(f"{uri}: {error}") from error
