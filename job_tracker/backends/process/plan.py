"""What a job becomes as processes: pure, so that tests compare it whole."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

from pydantic import TypeAdapter

from job_tracker.backends.process.options import OwnOptions
from job_tracker.domain.group import GroupRef
from job_tracker.domain.job import Job
from job_tracker.domain.policies import Elastic
from job_tracker.frameworks import FRAMEWORKS, Address, GroupLayout
from job_tracker.frameworks.job_environment import DEFAULTS, job_environment

_HOST = "127.0.0.1"
_OWN = TypeAdapter(OwnOptions)


@dataclass(frozen=True, slots=True)
class ProcessPlan:
    """A group of processes, but for what only the machine can say: the free port and the folders."""

    group: GroupRef
    roles: tuple[str, ...]
    """Of each rank."""
    commands: Mapping[str, tuple[str, ...]]
    """What instances of a role run, before the framework has its say."""
    memory_limit_bytes: int | None
    framework: str
    processes_per_instance: int
    elastic: Elastic | None
    restarts: tuple[int, ...]
    """How often each rank is to have been started anew."""
    environment: Mapping[str, str]
    """What every rank is told alike."""

    @property
    def ports(self) -> int:
        """How many ports the group needs: the master's first, or one for each rank."""
        return len(self.roles) if FRAMEWORKS[self.framework].traits.addresses_every_rank else 1

    def layout(self, ports: Sequence[int]) -> GroupLayout:
        """Where the ranks are, if they have these ports."""
        of_ranks = [*ports, *repeat(0, len(self.roles) - len(ports))]
        return GroupLayout(
            addresses=tuple(Address(_HOST, port) for port in of_ranks),
            roles=self.roles,
            processes_per_instance=self.processes_per_instance,
            elastic=self.elastic,
        )

    def argv(self, rank: int, ports: Sequence[int]) -> tuple[str, ...]:
        """The program of `rank` and its arguments."""
        return FRAMEWORKS[self.framework].command(self.layout(ports), self.commands[self.roles[rank]])

    def environment_of(self, rank: int, ports: Sequence[int], folder: Path) -> dict[str, str]:
        """Everything that the process of `rank` finds in its environment, and nothing else."""
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
) -> ProcessPlan:
    """The plan of the job's current attempt.

    `path` is the PATH of the processes, `inherited` what they get of the service's own environment, and
    `cores` what the instances share.
    """
    spec = job.spec.group
    own, processes = _OWN.validate_json(spec.trainers.engine or "{}"), spec.trainers.processes
    defaults = {
        # Each process would otherwise start a thread a core, and they would slow each other down.
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
            **spec.environment,
            **job_environment(job),
            **extra_environment,
            **_python(own.virtual_environment, path),
        },
    )


def _python(virtual_environment: Path | None, path: str) -> Mapping[str, str]:
    """What activating the environment sets (docs.python.org, venv)."""
    if virtual_environment is None:
        return {"PATH": path}
    first = virtual_environment / "bin"
    return {"PATH": f"{first}{os.pathsep}{path}", "VIRTUAL_ENV": str(virtual_environment)}
