"""Declarations: algorithms, datasets and queues that callers have declared through the API."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

LARGEST_DEFINITION: Final = 32 * 1024
"""The largest definition, in bytes."""


class Kind(StrEnum):
    """The kind of a declared entry."""

    ALGORITHM = "algorithm"
    DATASET = "dataset"
    QUEUE = "queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A declared algorithm, dataset or queue."""

    kind: Kind
    name: str
    project: str = ""
    """The only project that can use the entry. Empty: all projects. Always empty for queues, whose
    definitions name their projects."""
    definition: str
    """The fields of the entry, named as in the configuration, as JSON."""
    version: int = 0
    """The number of the change that stored this declaration, among all changes of declarations in the
    store."""
    changed_at: datetime
    changed_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclarationLimits:
    """The largest numbers of stored declarations, of all kinds together."""

    in_all: int = 1000
    of_project: int = 100
