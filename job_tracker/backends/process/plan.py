"""Plans the processes of a job, with pure functions, so that tests can compare whole plans."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

from pydantic import TypeAdapter

from job_tracker.backends.process.diagnosis import environment_gone
from job_tracker.backends.process.options import OwnOptions
from job_tracker.domain.errors import LaunchFailed
from job_tracker.domain.group import GroupRef
from job_tracker.domain.job import Job
from job_tracker.domain.policies import Elastic
from job_tracker.frameworks import FRAMEWORKS, Address, GroupLayout
from job_tracker.frameworks.job_environment import DEFAULTS, job_environment

_HOST = "127.0.0.1"
_OWN = TypeAdapter(OwnOptions)


@dataclass(frozen=True, slots=True)
class ProcessPlan:
    """The plan of a group of processes, without its ports and folders, which the launch assigns."""

    group: GroupRef
    roles: tuple[str, ...]
    """The role of each rank."""
    commands: Mapping[str, tuple[str, ...]]
    """The command of each role, before the framework changes it."""
    memory_limit_bytes: int | None
    framework: str
    processes_per_instance: int
    elastic: Elastic | None
    restarts: tuple[int, ...]
    """The number of restarts that each rank should have."""
    environment: Mapping[str, str]
    """The variables that are the same for every rank."""

    runner: tuple[str, ...] = ()
    """The arguments to put before each command, so that it runs with the packages of a requirements file."""
    program: tuple[str, str] | None = None
    """The project and the tree of an uploaded program; None for a configured algorithm."""

    @property
    def ports(self) -> int:
        """The number of ports that the group needs: one for each rank, or one for the master."""
        return len(self.roles) if FRAMEWORKS[self.framework].traits.addresses_every_rank else 1

    def layout(self, ports: Sequence[int]) -> GroupLayout:
        """Return the addresses and roles of the ranks. Ranks that have no port in `ports` get port 0."""
        of_ranks = [*ports, *repeat(0, len(self.roles) - len(ports))]
        return GroupLayout(
            addresses=tuple(Address(_HOST, port) for port in of_ranks),
            roles=self.roles,
            processes_per_instance=self.processes_per_instance,
            elastic=self.elastic,
        )

    def argv(self, rank: int, ports: Sequence[int]) -> tuple[str, ...]:
        """Return the program that the rank runs, and its arguments, given the group's ports."""
        command = FRAMEWORKS[self.framework].command(self.layout(ports), self.commands[self.roles[rank]])
        return (*self.runner, *command)

    def environment_of(self, rank: int, ports: Sequence[int], folder: Path) -> dict[str, str]:
        """Return the complete environment of the process of `rank`."""
        return {
            **self.environment,
            **FRAMEWORKS[self.framework].environment(self.layout(ports), rank),
            "HOME": str(folder / "work"),
            "TMPDIR": str(folder / "tmp"),
        }


def plan(
    job: Job,
    *,
    path: str,
    extra_environment: Mapping[str, str],
    inherited: Mapping[str, str],
    cores: int,
    runner: tuple[str, ...] = (),
    caches: Mapping[str, str] | None = None,
    environments: Mapping[str, Path] | None = None,
) -> ProcessPlan:
    """Return the plan of the job's current attempt.

    `path` is the PATH of the processes, `inherited` are the variables that they get from the service's
    environment and settings, `extra_environment` are further variables of the service, and `cores` is the
    number of cores that all instances share. `runner` comes before the commands, `caches` are variables for
    caches, and `environments` are the configured Python environments by name. Raises LaunchFailed if the
    program's environment is no longer configured.
    """
    spec, program = job.spec.group, job.spec.program
    own, processes = _OWN.validate_json(spec.trainers.engine or "{}"), spec.trainers.processes
    virtual_environment = own.virtual_environment
    if program and program.python_environment:
        found = (environments or {}).get(program.python_environment)
        if found is None:
            raise LaunchFailed(environment_gone(program.python_environment))
        virtual_environment = found.absolute()
    defaults = {
        # By default each process starts a thread per core, and the processes slow each other down.
        "OMP_NUM_THREADS": str(max(1, cores // (spec.size * processes))),
        **DEFAULTS,
    }
    return ProcessPlan(
        group=job.group,
        roles=spec.role_of_ranks,
        commands={role: spec.instance(role).command for role in spec.roles},
        memory_limit_bytes=own.memory_limit_bytes,
        framework=spec.framework,
        processes_per_instance=processes,
        elastic=spec.elastic,
        restarts=tuple(job.restarts_of(rank) for rank in range(spec.size)),
        environment={
            **inherited,
            **defaults,
            **(caches or {}),
            **spec.environment,
            **job_environment(job),
            **extra_environment,
            **_python(virtual_environment, path),
        },
        runner=runner,
        program=(job.spec.project, program.tree) if program else None,
    )


def _python(virtual_environment: Path | None, path: str) -> Mapping[str, str]:
    """Return the variables that the activation of the virtual environment would set (docs.python.org, venv).

    Without a virtual environment, the only variable is PATH.
    """
    if virtual_environment is None:
        return {"PATH": path}
    first = virtual_environment / "bin"
    return {"PATH": f"{first}{os.pathsep}{path}", "VIRTUAL_ENV": str(virtual_environment)}
