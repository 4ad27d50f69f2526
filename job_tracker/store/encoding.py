"""The values of a job that stores keep as JSON, without the fields that have the default of their class.

Specs: specs.py.

A stored job that lacks a field has its default for ever. So defaults that were released never change: those
of JobSpec, its policies, RankStatus, Ending, Diagnosis, Move, Progress and Artifact. What is to be otherwise
for new jobs is set by admission, or is a new field.
"""

from typing import TypeVar

from pydantic import TypeAdapter

from job_tracker.domain.group import RankStatus
from job_tracker.domain.job import Ending, Move, Progress
from job_tracker.domain.telemetry import Artifact

T = TypeVar("T")

RANKS = TypeAdapter(tuple[RankStatus, ...])
ENDING = TypeAdapter(Ending)
MOVES = TypeAdapter(tuple[Move, ...])
PROGRESS = TypeAdapter(Progress)
ARTIFACT = TypeAdapter(Artifact)


def text_of(adapter: TypeAdapter[T], value: T) -> str:
    """Write the value down; the adapter's `validate_json` reads it."""
    return adapter.dump_json(value, exclude_defaults=True).decode()
