"""Training processes of other frameworks, each example in its own environment."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.frameworks import python_of
from tests.support.ports import free_port
from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.launcher import Ended, Launcher, end_of

GROUP_BATCH = 96
"""Examples per step of the whole group, so that groups of 1, 2 and 3 take the same examples."""
ENDLESS = {"EPOCHS": "100000"}
KILLED = str(Path(__file__).parent / "programs" / "killed.py")
"""The program that runs a module, and kills its process at a step; see its docstring."""
EVERY = 20
"""The steps between two checkpoints of groups that are killed."""

Processes = list[subprocess.Popen[str]]


class Trained(NamedTuple):
    """The result of a training run."""

    model: Path
    ends: Sequence[Ended]
    """The ends of the training's processes, by rank."""

    @property
    def losses(self) -> list[float]:
        """The loss of each epoch, as reported by the master."""
        return [json.loads(line)["metrics"]["loss"] for line in progress_of(self.ends[0].stdout)]

    @property
    def accuracy(self) -> float:
        """The accuracy on the test split, which the master printed and the manifest contains."""
        manifest = json.loads((self.model / "manifest.json").read_text())
        accuracy: float = manifest["test_accuracy"]
        assert f"test accuracy {accuracy:.3f} on 504 questions" in self.ends[0].stdout
        return accuracy


def saving(folder: Path, attempt: int, **kill: str) -> dict[str, str]:
    """Return the variables of an attempt that keeps checkpoints in `folder`."""
    places = {"CHECKPOINT_URI": str(folder), "JOB_ATTEMPT": str(attempt)}
    return {**places, "CHECKPOINT_EVERY_STEPS": str(EVERY), **kill}


def check_resumption(killed: Ended, resumed: Ended, killed_at: int) -> None:
    """Check that a group resumed from the last checkpoint of the killed group, and had the same losses.

    `killed` and `resumed` are the ends of rank 0. Both groups take the steps after the checkpoint, up to the
    end of an epoch.
    """
    last = (killed_at - 1) // EVERY * EVERY
    assert f"resuming from step {last}, saved by attempt 1\n" in resumed.stdout
    assert progress_of(killed.stdout)[0] == progress_of(resumed.stdout)[0]
    assert json.loads(progress_of(killed.stdout)[0])["step"] > last
    [*_, reported] = [line for line in killed.stdout.splitlines() if line.startswith("::artifact::")]
    assert f"step-{last:012}" in reported


def launcher_of(example: str, folder: Path, forks: Sequence[ForkServer] = ()) -> Launcher:
    """Return a launcher of processes in the Python environment of the example."""
    return Launcher(folder, python_of(example), forks)


def progress_of(stdout: str) -> list[str]:
    """Return the content of each progress line."""
    return [line.split(" ", 1)[1] for line in stdout.splitlines() if line.startswith("::progress::")]


def cluster_of(**sizes: int) -> dict[str, list[str]]:
    """Return addresses for the tasks of each role.

    `sizes` are the numbers of tasks. Roles without tasks are left out.
    """
    return {
        role: [f"127.0.0.1:{free_port()}" for _ in range(size)] for role, size in sizes.items() if size > 0
    }


def start_tasks(
    launcher: Launcher,
    module: str,
    cluster: Mapping[str, Sequence[str]],
    program: str = "-m",
    **variables: str,
) -> dict[str, Processes]:
    """Start one process for each task of a TensorFlow cluster, by role. `program` runs the module."""

    def start(role: str, index: int) -> subprocess.Popen[str]:
        config: dict[str, Any] = {"cluster": cluster, "task": {"type": role, "index": index}}
        place = {"TF_CONFIG": json.dumps(config), "TASK": f"{role} {index}"}
        return launcher.start(program, module, **place, **variables)

    return {role: [start(role, index) for index in range(len(them))] for role, them in cluster.items()}


def start_jax(
    launcher: Launcher, size: int, program: Sequence[str] = ("-m", "jax_questions.train"), **variables: str
) -> Processes:
    """Start the processes of a JAX group, by rank."""
    address = f"127.0.0.1:{free_port()}"
    return [
        launcher.start(
            *program,
            JAX_COORDINATOR_ADDRESS=address,
            JAX_NUM_PROCESSES=str(size),
            JAX_PROCESS_ID=str(rank),
            **variables,
        )
        for rank in range(size)
    ]


def start_horovod(launcher: Launcher, size: int, *arguments: str, **variables: str) -> Processes:
    """Start the processes of a Horovod group, by rank."""
    port = free_port()
    return [start_horovod_rank(launcher, size, rank, port, *arguments, **variables) for rank in range(size)]


def start_horovod_rank(
    launcher: Launcher, size: int, rank: int, port: int, *arguments: str, **variables: str
) -> subprocess.Popen[str]:
    """Start one process of a Horovod group as the service does."""
    return launcher.start(
        *arguments,
        HOROVOD_RANK=str(rank),
        HOROVOD_SIZE=str(size),
        HOROVOD_LOCAL_RANK="0",
        HOROVOD_LOCAL_SIZE="1",
        HOROVOD_CROSS_RANK=str(rank),
        HOROVOD_CROSS_SIZE=str(size),
        HOROVOD_HOSTNAME=f"instance-{rank}",
        HOROVOD_GLOO_RENDEZVOUS_ADDR="127.0.0.1",
        HOROVOD_GLOO_RENDEZVOUS_PORT=str(port),
        HOROVOD_CONTROLLER="gloo",
        HOROVOD_CPU_OPERATIONS="gloo",
        **variables,
    )


def await_first_epoch(master: subprocess.Popen[str]) -> None:
    """Wait until the group has completed an epoch. Fail if the master ends first."""
    assert master.stdout
    for line in master.stdout:
        if line.startswith("::progress::"):
            return
    pytest.fail(f"the master ended in its first epoch: {end_of(master)}")


def all_succeed(processes: Processes) -> list[Ended]:
    """Wait for the processes, which must all succeed, and return their ends."""
    ends = [end_of(process) for process in processes]
    assert [end.code for end in ends] == [0] * len(ends), [end.stderr for end in ends]
    return ends
