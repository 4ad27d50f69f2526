"""What a job becomes as processes: pure, so that tests compare it whole."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from job_tracker.catalog import Algorithm
from job_tracker.diagnosis import Category, Diagnosis
from job_tracker.environment import job_environment
from job_tracker.errors import LaunchFailed
from job_tracker.frameworks import FRAMEWORKS, GroupLayout
from job_tracker.model import GroupRef, Job

_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ProcessPlan:
    """A group of processes, but for what only the machine can say: the free port and the folders."""

    group: GroupRef
    instances: int
    argv: tuple[str, ...]
    memory_limit_bytes: int | None
    framework: str
    environment: Mapping[str, str]
    """What every rank is told alike."""

    def environment_of(self, rank: int, master_port: int, folder: Path) -> dict[str, str]:
        """Everything that the process of `rank` finds in its environment, and nothing else."""
        layout = GroupLayout((_HOST,) * self.instances, master_port)
        return {
            **self.environment,
            **FRAMEWORKS[self.framework].environment(layout, rank),
            "HOME": str(folder / "work"),
            "TMPDIR": str(folder / "tmp"),
        }


def plan(
    job: Job,
    algorithms: Mapping[str, Algorithm],
    *,
    path: str,
    told: Mapping[str, str],
    inherited: Mapping[str, str],
    cores: int,
) -> ProcessPlan:
    """The plan of the job's current attempt. Raises LaunchFailed if the algorithm cannot run here.

    `path` is the PATH of the processes, `told` what they are told besides, `inherited` what they get of
    the service's own environment, and `cores` what the instances share.
    """
    algorithm = algorithms.get(job.spec.algorithm)
    if algorithm is None or algorithm.process is None:
        raise LaunchFailed(_algorithm_gone(job.spec.algorithm))
    defaults = {
        # Each instance would otherwise start a thread a core, and they would slow each other down.
        "OMP_NUM_THREADS": str(max(1, cores // job.spec.instances)),
        "PYTHONUNBUFFERED": "1",  # so that logs can be followed
    }
    return ProcessPlan(
        group=job.group,
        instances=job.spec.instances,
        argv=algorithm.process.command,
        memory_limit_bytes=algorithm.process.memory_limit_bytes,
        framework=algorithm.framework,
        environment={
            **inherited,
            **defaults,
            **algorithm.environment,
            **job_environment(job),
            **told,
            "PATH": path,
        },
    )


def _algorithm_gone(name: str) -> Diagnosis:
    return Diagnosis(
        category=Category.ALGORITHM_GONE,
        summary=f"The algorithm {name!r} is no longer configured to run as processes.",
        resolution=f"Put algorithms.{name}.process back into the configuration, and submit the job again.",
    )
