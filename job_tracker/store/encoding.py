"""Encodes values of jobs and projects as JSON, for stores. For specs, see specs.py.

Fields that have the default of their class are left out. So if a stored job lacks a field, the field always
has that default. Therefore, defaults must never change after a release. This applies to JobSpec, RankStatus,
Allocation, Ending, Move, Progress, Artifact and ProjectLimits, and to the classes of their fields.
If new jobs need a value other than the default, admission sets it, or a new field is added.
"""

from collections.abc import Mapping
from typing import TypeVar

from pydantic import TypeAdapter

from job_tracker.domain.allocation import Allocation
from job_tracker.domain.caller import Role
from job_tracker.domain.group import RankStatus
from job_tracker.domain.job import Ending, Move
from job_tracker.domain.policies import ProjectLimits
from job_tracker.domain.progress import Progress
from job_tracker.domain.telemetry import Artifact

T = TypeVar("T")

ALLOCATION = TypeAdapter(Allocation)
RANKS = TypeAdapter(tuple[RankStatus, ...])
ENDING = TypeAdapter(Ending)
MOVES = TypeAdapter(tuple[Move, ...])
PROGRESS = TypeAdapter(Progress)
ARTIFACT = TypeAdapter(Artifact)
MEMBERS = TypeAdapter(Mapping[str, Role])
LIMITS = TypeAdapter(ProjectLimits)
TAGS = TypeAdapter(tuple[str, ...])


def text_of(adapter: TypeAdapter[T], value: T) -> str:
    """Return the value as JSON, which the adapter's `validate_json` can read."""
    return adapter.dump_json(value, exclude_defaults=True).decode()
