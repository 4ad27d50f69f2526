"""Settings of projects, in the configuration or in a file of their own."""

import stat
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, ValidationError

from job_tracker.common.config import Config
from job_tracker.common.printable import quoted
from job_tracker.common.validation import explain
from job_tracker.domain import naming
from job_tracker.domain.access import LONGEST_MEMBER, MOST_MEMBERS, Project
from job_tracker.domain.caller import Role
from job_tracker.domain.policies import ProjectLimits

_LARGEST_FILE: Final = 16 << 20


def _member(name: str) -> str:
    if not 0 < len(name) <= LONGEST_MEMBER or not name.isprintable():
        raise ValueError(
            f"{quoted(name)} is not the name of a member: use 1 to {LONGEST_MEMBER} printable characters"
        )
    return name


class ProjectSettings(Config):
    """A project. Every job belongs to one project. The project `default` always exists."""

    max_queued: int | None = Field(
        default=None,
        ge=1,
        description="Number of the project's jobs that may wait in the queue. Further jobs are refused with "
        "RESOURCE_EXHAUSTED. Unset: only the limits for all jobs, for callers and for queues apply.",
    )
    members: dict[Annotated[str, AfterValidator(_member)], Literal["viewer", "submitter", "admin"]] = Field(
        default={},
        max_length=MOST_MEMBERS,
        description="Role of each member, by name: the NAME of `trainctl token create NAME`, or the name in "
        "a client certificate.",
    )

    def project(self, name: str) -> Project:
        """Return these settings as a project with this name."""
        return Project(
            name=name,
            members={member: Role[role.upper()] for member, role in self.members.items()},
            limits=ProjectLimits(max_queued=self.max_queued),
        )


def _checked_names(projects: dict[str, ProjectSettings]) -> dict[str, ProjectSettings]:
    for name in projects:
        if not naming.is_project(name):
            raise ValueError(f"{quoted(name)} is not the name of a project: {naming.PROJECT_RULE}")
    return projects


ProjectTables = Annotated[dict[str, ProjectSettings], AfterValidator(_checked_names)]


class _ProjectsFile(Config):
    projects: ProjectTables = Field(default={})


def projects_of(tables: Mapping[str, ProjectSettings]) -> dict[str, Project]:
    """Return the projects in these tables, by name."""
    return {name: table.project(name) for name, table in tables.items()}


def read_projects(path: Path, configured: Collection[str], stored: Collection[str]) -> dict[str, Project]:
    """Return the projects in a file, by name.

    Raises ValueError, with a message of one line, if the file cannot be used. The file must not have names
    in `configured` (projects in the configuration) or in `stored` (projects declared through the API).
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a FIFO would block
            raise ValueError(f"{path}: cannot be read (it is not a regular file)")
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
        if len(content) > _LARGEST_FILE:
            raise ValueError(f"{path}: it is larger than {_LARGEST_FILE >> 20} MiB")
        found = _ProjectsFile(**tomllib.loads(content.decode()))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from None
    except ValidationError as error:
        raise ValueError(f"{path}: {explain(error, _ProjectsFile)}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: not valid TOML ({error})") from None
    for name in sorted(found.projects):
        if name in configured:
            raise ValueError(f"{path}: project {name} is in the configuration, too; remove one of the two")
        if name in stored:
            raise ValueError(
                f"{path}: project {name} was declared through the API, too; remove it from the file, or "
                f"delete it with `trainctl project delete {name}` while the service runs"
            )
    return projects_of(found.projects)
