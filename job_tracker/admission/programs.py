"""Checks the program of a request: the files that the caller has uploaded, and the command to run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from job_tracker.catalog import Algorithm
from job_tracker.catalog.groups import GROUP_PARAMETERS
from job_tracker.catalog.parameters import PARAMETER_NAME, Parameter
from job_tracker.common.printable import quoted
from job_tracker.domain.errors import Forbidden, InvalidField
from job_tracker.domain.job_spec import Program, ProgramChanges
from job_tracker.frameworks import FRAMEWORKS
from job_tracker.frameworks.reserved_names import is_reserved

PROGRAM: Final = "program"
"""The name of the algorithm of jobs that run uploaded programs."""
_DEFAULT_FRAMEWORK = "pytorch"
_MOST_ARGUMENTS = 1024
_MOST_BYTES = 64 * 1024
_MOST_VARIABLES = 256
_LONGEST_VERSION = 256
_IN_TEXT = "\n\t"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRequest:
    """An unchecked program of a request."""

    tree: str
    command: tuple[str, ...]
    framework: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    requirements: str = ""
    python_environment: str = ""
    image: str = ""
    changes: ProgramChanges | None = None


class Trees(Protocol):
    """The uploaded trees of files."""

    async def require(self, project: str, tree: str, requirements: str = "") -> None:
        """Check that a job of the project can run in the tree, and record this use of the tree.

        `requirements` is empty, or the path of a file in the tree. Raises UnknownReference if the tree is
        unknown or incomplete, InvalidField if the tree lacks this file or `tree` cannot be the name of a
        tree, and Forbidden if the service runs no uploaded programs.
        """
        ...

    async def use_changes(self, project: str, tree: str) -> None:
        """Record that a job uses a tree of uncommitted changes. The tree may be incomplete or unknown.

        Raises InvalidField if `tree` cannot be the name of a tree, or if the tree is complete and is not a
        single diff file of limited size.
        """
        ...


class NoTrees:
    """The trees of a service that accepts no uploads."""

    async def require(self, project: str, tree: str, requirements: str = "") -> None:  # noqa: ARG002
        """Raise Forbidden."""
        raise Forbidden("this service runs no uploaded programs; use a configured algorithm")

    async def use_changes(self, project: str, tree: str) -> None:
        """Do nothing, since `require` has already refused the job."""


def algorithm_of(program: ProgramRequest, name: str) -> Algorithm:
    """Check the program, and return an algorithm for it. The algorithm has no recipe for any backend.

    What depends on the uploaded files or on the backend is checked later. So the tree is not checked here. Of
    the requirements, Python environment and image, only this is checked: a Python environment is not combined
    with one of the other two. `name` is the algorithm that the request names. Raises InvalidField if a part
    that is checked here is not allowed.
    """
    if name not in ("", PROGRAM):
        raise InvalidField("algorithm", f"{quoted(name)} is not allowed with a program; leave it out")
    _check_command(program.command)
    check_environment("program.environment", program.environment)
    if len(program.version) > _LONGEST_VERSION or not program.version.isprintable():
        raise InvalidField(
            "program.version",
            f"{quoted(program.version)} is not allowed: use at most {_LONGEST_VERSION} printable characters",
        )
    if program.requirements and program.python_environment:
        raise InvalidField(
            "program.python_environment", "not allowed together with program.requirements; give one of them"
        )
    if program.image and program.python_environment:
        raise InvalidField(
            "program.image", "not allowed together with program.python_environment; give one of them"
        )
    framework = program.framework or _DEFAULT_FRAMEWORK
    if framework not in FRAMEWORKS:
        allowed = ", ".join(sorted(FRAMEWORKS))
        raise InvalidField("program.framework", f"{quoted(framework)} is not a framework; allowed: {allowed}")
    return Algorithm(framework=framework, dataset=False, version=program.version)


def accepted(program: ProgramRequest) -> Program:
    """Return the part of a checked program that is stored with the job.

    The job's group has the command and the framework, and the job's spec has the version as `code_version`.
    """
    return Program(
        tree=program.tree,
        environment=dict(program.environment),
        requirements=program.requirements,
        python_environment=program.python_environment,
        image=program.image,
        changes=program.changes,
    )


def _check_command(command: Sequence[str]) -> None:
    name = "program.command"
    if not command or not command[0]:
        raise InvalidField(name, "must not be empty; give a program and its arguments")
    if len(command) > _MOST_ARGUMENTS:
        raise InvalidField(name, f"has {len(command)} arguments; at most {_MOST_ARGUMENTS} are allowed")
    size = sum(len(argument.encode()) for argument in command)
    if size > _MOST_BYTES:
        raise InvalidField(name, f"has {size} bytes in all; at most {_MOST_BYTES} are allowed")
    for argument in command:
        if not all(c.isprintable() or c in _IN_TEXT for c in argument):
            raise InvalidField(
                name,
                f"{quoted(argument)} is not allowed: use printable characters, line breaks and tabs only",
            )


def check_environment(field: str, environment: Mapping[str, str]) -> None:
    """Raise InvalidField, for `field` or an entry in it, if a caller may not set these variables of a job."""
    if len(environment) > _MOST_VARIABLES:
        raise InvalidField(field, f"has {len(environment)} entries; at most {_MOST_VARIABLES} are allowed")
    size = sum(len(name.encode()) + len(value.encode()) for name, value in environment.items())
    if size > _MOST_BYTES:
        raise InvalidField(field, f"has {size} bytes in all; at most {_MOST_BYTES} are allowed")
    for name, value in environment.items():
        where = f"{field}.{quoted(name)[1:-1]}"
        if not PARAMETER_NAME.fullmatch(name):
            raise InvalidField(
                where,
                "the name is not allowed; allowed: at most 128 letters, digits and _, not beginning with a "
                "digit",
            )
        if is_reserved(name) or name in GROUP_PARAMETERS:
            raise InvalidField(
                where,
                "the name is reserved: the service sets it, or it can change which code runs; set it in the "
                "program itself, or use another name",
            )
        Parameter().check(where, value)
