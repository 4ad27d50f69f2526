"""The algorithms and datasets that a job can use, each with its origin."""

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Generic, Protocol, TypeVar

from job_tracker.catalog.algorithms import Algorithm
from job_tracker.catalog.datasets import Dataset
from job_tracker.common.printable import quoted
from job_tracker.domain.errors import InvalidField, UnknownReference

T = TypeVar("T")

ANY_DATASET = "*"
"""The id of the dataset entry for all datasets without an entry of their own."""
_MOST_SHOWN = 20
_LONGEST_COMPARED = 100
_LEAST_LIKENESS = 0.5
HOW_TO_ADD: Final = {
    "algorithm": "to add one: `trainctl algorithm set FILE`, see docs/catalog.md",
    "dataset": "to add one: `trainctl dataset set FILE`, see docs/catalog.md",
}
"""The advice for an unknown name, by the kind of the entry."""


class Origin(StrEnum):
    """The origin of an entry."""

    SHIPPED = "shipped"
    """The entry is built in."""
    FILE = "file"
    """The entry is in a file of the configuration."""
    API = "api"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # compared by identity, so entries can be keys
class Entry(Generic[T]):
    """An algorithm, a dataset or a queue with its name."""

    name: str
    value: T | None
    """None: the entry cannot be used, because of `problem`."""
    problem: str = ""
    origin: Origin = Origin.FILE
    project: str = ""
    """The only project that can use the entry. Empty: all projects."""
    version: int = 0
    """The number of the change that declared the entry through the API; 0 for other entries."""
    changed_at: datetime | None = None
    changed_by: str = ""
    definition: str = ""
    """The definition that was declared through the API, as JSON; empty for other entries."""


Algorithms = Mapping[str, Entry[Algorithm]]
Datasets = Mapping[str, Entry[Dataset]]


class Catalog(Protocol):
    """Finds algorithms and datasets. Its answers may differ from call to call."""

    def algorithms(self, project: str) -> Algorithms:
        """Return the algorithms of a project, keyed by name. They include the algorithms for all projects."""
        ...

    def datasets(self, project: str) -> Datasets:
        """Return the datasets of a project, keyed by id. They include the datasets for all projects."""
        ...


class FixedCatalog:
    """A catalog with the same algorithms and datasets for every project."""

    def __init__(
        self, algorithms: Mapping[str, Algorithm], datasets: Mapping[str, Dataset] | None = None
    ) -> None:
        self._algorithms = {name: Entry(name=name, value=value) for name, value in algorithms.items()}
        self._datasets = {name: Entry(name=name, value=value) for name, value in (datasets or {}).items()}

    def algorithms(self, project: str) -> Algorithms:  # noqa: ARG002
        """See Catalog."""
        return self._algorithms

    def datasets(self, project: str) -> Datasets:  # noqa: ARG002
        """See Catalog."""
        return self._datasets


def dataset_entry_of(dataset_id: str, datasets: Collection[str]) -> str:
    """Return the name of the entry for a dataset: its id if an entry has this name, otherwise ANY_DATASET.

    `datasets` are the names of the entries. If neither name is among them, return the id.
    """
    return dataset_id if dataset_id in datasets or ANY_DATASET not in datasets else ANY_DATASET


def required(field: str, entries: Mapping[str, Entry[T]], name: str) -> tuple[Entry[T], T]:
    """Return the entry with this name, and its value. `entries` are the entries that the caller may see.

    Raises UnknownReference if there is no such entry, or InvalidField if the entry cannot be used.
    """
    entry = entries.get(name)
    if entry is None:
        advice = HOW_TO_ADD[field.removesuffix("_id")]
        raise UnknownReference(
            field, f"{quoted(name)} doesn't exist; configured: {listed_like(name, entries)}; {advice}"
        )
    if entry.value is None:
        raise InvalidField(field, f"{quoted(name)} cannot be used: {entry.problem}")
    return entry, entry.value


def listed(names: Collection[str]) -> str:
    """Return text for a message: the first names in sorted order, and how many more there are."""
    return _first(sorted(names))


def listed_like(name: str, names: Collection[str]) -> str:
    """Return text for a message as `listed` does, but with the names that are most like `name` first."""
    return _first(most_like(name, names))


def most_like(name: str, names: Collection[str]) -> list[str]:
    """Return the names: first those that `name` may be a misspelling of, then the others in sorted order."""
    near = difflib.get_close_matches(name[:_LONGEST_COMPARED], names, _MOST_SHOWN, _LEAST_LIKENESS)
    return [*near, *sorted(set(names).difference(near))]


def _first(names: Sequence[str]) -> str:
    more = [f"and {len(names) - _MOST_SHOWN} more"] if len(names) > _MOST_SHOWN else []
    return ", ".join([*names[:_MOST_SHOWN], *more]) or "none"
