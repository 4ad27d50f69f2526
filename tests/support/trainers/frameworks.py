"""Training processes of other frameworks, each example in the environment of its own."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.frameworks import python_of
from tests.support.ports import free_port
from tests.support.trainers.launcher import Ended, Launcher, end_of

GROUP_BATCH = 96
"""Examples in a step of the whole group, so that groups of 1, 2 and 3 take the same ones."""
PATIENCE = 120
"""Seconds until a training counts as stuck: it takes 4, and a busy machine's importing of TensorFlow 30."""
ENDLESS = {"EPOCHS": "100000"}

Processes = list[subprocess.Popen[str]]


class Trained(NamedTuple):
    """What came of a training."""

    model: Path
    ends: Sequence[Ended]
    """How its processes ended, by rank."""

    @property
    def losses(self) -> list[float]:
        """Of each epoch, as the master told."""
        return [json.loads(line)["metrics"]["loss"] for line in progress_of(self.ends[0].stdout)]

    @property
    def accuracy(self) -> float:
        """On the test split, as the master told and as the manifest says."""
        manifest = json.loads((self.model / "manifest.json").read_text())
        accuracy: float = manifest["test_accuracy"]
        assert f"test accuracy {accuracy:.3f} on 504 questions" in self.ends[0].stdout
        return accuracy


def launcher_of(example: str, folder: Path) -> Launcher:
    """Starts processes in the environment of the example."""
    return Launcher(folder, python_of(example))


def progress_of(stdout: str) -> list[str]:
    """The content of each progress line."""
    return [line.split(" ", 1)[1] for line in stdout.splitlines() if line.startswith("::progress::")]


def cluster_of(**sizes: int) -> dict[str, list[str]]:
    """Addresses for so many tasks of each role, and no entry for a role with none."""
    return {
        role: [f"127.0.0.1:{free_port()}" for _ in range(size)] for role, size in sizes.items() if size > 0
    }


def start_tasks(
    launcher: Launcher, module: str, cluster: Mapping[str, Sequence[str]], **variables: str
) -> dict[str, Processes]:
    """One process for each task of a TensorFlow cluster, by role."""

    def start(role: str, index: int) -> subprocess.Popen[str]:
        config: dict[str, Any] = {"cluster": cluster, "task": {"type": role, "index": index}}
        return launcher.start("-m", module, TF_CONFIG=json.dumps(config), **variables)

    return {role: [start(role, index) for index in range(len(them))] for role, them in cluster.items()}


def start_jax(launcher: Launcher, size: int, **variables: str) -> Processes:
    """The processes of a JAX group, by rank."""
    address = f"127.0.0.1:{free_port()}"
    return [
        launcher.start(
            "-m",
            "jax_questions.train",
            JAX_COORDINATOR_ADDRESS=address,
            JAX_NUM_PROCESSES=str(size),
            JAX_PROCESS_ID=str(rank),
            **variables,
        )
        for rank in range(size)
    ]


def await_first_epoch(master: subprocess.Popen[str]) -> None:
    """Returns when the group has learnt for an epoch; fails if the master ends before that."""
    assert master.stdout
    for line in master.stdout:
        if line.startswith("::progress::"):
            return
    pytest.fail(f"the master ended in its first epoch: {end_of(master)}")


def all_succeed(processes: Processes) -> list[Ended]:
    """How they ended, which is well."""
    ends = [end_of(process, PATIENCE) for process in processes]
    assert [end.code for end in ends] == [0] * len(ends), [end.stderr for end in ends]
    return ends
