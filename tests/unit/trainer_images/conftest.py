from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
from intent_classification import questions
from intent_classification.prepare_data import prepare

from tests.support.frameworks import python_of
from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.frameworks import launcher_of
from tests.support.trainers.launcher import Launcher, Trained, train

JOB = {
    "JOB_ID": "7",
    "JOB_ATTEMPT": "2",
    "ALGORITHM_NAME": "intent-classification",
    "TRAINING_DATASET_ID": "1",
    "TRAINING_DATASET_VERSION_HASH": "abc",
    "MODEL_NAME": "questions",
}
PARAMETERS = {"LR": "4", "EPOCHS": "10", "BATCH_SIZE": "64", "FC_SIZE": "128"}


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    """A launcher for tests of processes themselves: how they start, fail and end."""
    launcher = Launcher(tmp_path)
    yield launcher
    launcher.close()


@pytest.fixture(scope="session")
def questions_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The real dataset with its six coarse classes."""
    labelled = [(question.text, question.coarse) for question in questions.load()]
    return prepare(labelled, str(tmp_path_factory.mktemp("questions")), "1").uri


@pytest.fixture(scope="session")
def trained(
    questions_uri: str, tmp_path_factory: pytest.TempPathFactory, forks: Sequence[ForkServer]
) -> Callable[[int], Trained]:
    """Train a group of this size on the real data, and return the result."""

    @cache
    def train_once(size: int) -> Trained:
        folder = tmp_path_factory.mktemp(f"trained-by-{size}")
        with Launcher(folder, forks=forks) as launcher:
            ends = train(launcher, size, questions_uri, folder / "model", **JOB, **PARAMETERS)
        return Trained(folder / "model", ends)

    return train_once


@pytest.fixture(scope="session")
def tensorflow_forks() -> Iterator[ForkServer]:
    """A fork server with TensorFlow, which takes four seconds of CPU time to import."""
    server = ForkServer(("tensorflow", "keras"), python_of("tensorflow_questions"))
    server.wait_for_imports()
    yield server
    server.close()


@pytest.fixture(scope="session")
def jax_forks() -> Iterator[ForkServer]:
    """A fork server with JAX."""
    server = ForkServer(("jax.numpy", "jax.sharding"), python_of("jax_questions"))
    server.wait_for_imports()
    yield server
    server.close()


@pytest.fixture(scope="session")
def horovod_forks() -> Iterator[ForkServer]:
    """A fork server with Horovod, which imports PyTorch."""
    server = ForkServer(("horovod.torch",), python_of("horovod_questions"))
    server.wait_for_imports()
    yield server
    server.close()


@pytest.fixture(scope="session")
def horovod_tensorflow_forks() -> Iterator[ForkServer]:
    """A fork server with Horovod on TensorFlow."""
    server = ForkServer(("horovod.tensorflow", "keras"), python_of("horovod_tensorflow_questions"))
    server.wait_for_imports()
    yield server
    server.close()


@pytest.fixture
def tensorflow(tmp_path: Path, tensorflow_forks: ForkServer) -> Iterator[Launcher]:
    launcher = launcher_of("tensorflow_questions", tmp_path, [tensorflow_forks])
    yield launcher
    launcher.close()


@pytest.fixture
def jax(tmp_path: Path, jax_forks: ForkServer) -> Iterator[Launcher]:
    launcher = launcher_of("jax_questions", tmp_path, [jax_forks])
    yield launcher
    launcher.close()


@pytest.fixture
def horovod(tmp_path: Path, horovod_forks: ForkServer) -> Iterator[Launcher]:
    launcher = launcher_of("horovod_questions", tmp_path, [horovod_forks])
    yield launcher
    launcher.close()


@pytest.fixture
def horovod_tensorflow(tmp_path: Path, horovod_tensorflow_forks: ForkServer) -> Iterator[Launcher]:
    launcher = launcher_of("horovod_tensorflow_questions", tmp_path, [horovod_tensorflow_forks])
    yield launcher
    launcher.close()


@pytest.fixture
def mpi(tmp_path: Path) -> Iterator[Launcher]:
    launcher = launcher_of("mpi_questions", tmp_path)
    yield launcher
    launcher.close()
