"""Real groups, of which servers, standbys or workers are killed in the middle of the training."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
import torch
from language_model.corpus import BLOCK

from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.groups import ROOT
from tests.support.trainers.launcher import Ended, Launcher, end_of, first_line_of

PROGRAM = ("-m", "tests.support.trainers.programs.killed_server")
STEPS = 12
SMALL = {"LAYERS": "2", "HEADS": "2", "WIDTH": "32", "CONTEXT": "32", "BATCH_SIZE": "12"}
SERVED = {"STRATEGY": "parameter_server", "SERVERS": "2"}
WITH_STANDBYS = {**SERVED, "STANDBY": "true", "CHECKPOINT_EVERY_STEPS": "4"}


class Trainings:
    """Trains on its data."""

    def __init__(self, folder: Path, forks: Sequence[ForkServer]) -> None:
        self._folder = folder
        self._launcher = Launcher(folder, forks=forks)
        chance = torch.Generator().manual_seed(1)
        for name in ("train.txt", "validation.txt"):
            text = torch.randint(32, 96, (16 * BLOCK,), generator=chance, dtype=torch.uint8)
            (folder / name).write_bytes(text.numpy().tobytes())

    def train(self, folder: Path, size: int, variables: Mapping[str, str], steps: int = STEPS) -> list[Ended]:
        """Return how the ranks ended. Trainings in the same folder share checkpoints."""
        return [end_of(process) for process in self.start(folder, size, variables, steps)]

    def start(
        self, folder: Path, size: int, variables: Mapping[str, str], steps: int
    ) -> list[subprocess.Popen[str]]:
        return self._launcher.start_group(
            size,
            *PROGRAM,
            PYTHONPATH=f"{ROOT}:{ROOT / 'trainer_images'}",
            TRAINING_DATA_URI=str(self._folder),
            MODEL_URI=str(folder / "model"),
            CHECKPOINT_URI=str(folder / "checkpoints"),
            **SMALL,
            STEPS=str(steps),
            **variables,
        )

    def close(self) -> None:
        self._launcher.close()


def weights_in(folder: Path) -> dict[str, torch.Tensor]:
    weights: dict[str, torch.Tensor] = torch.load(folder / "model" / "model.pt")
    return weights


def loss_in(folder: Path) -> float:
    manifest = json.loads((folder / "model" / "manifest.json").read_text())
    loss: float = manifest["metrics"]["loss"]
    return loss


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory, forks: Sequence[ForkServer]) -> Iterator[Trainings]:
    trainings = Trainings(tmp_path_factory.mktemp("killed"), forks)
    yield trainings
    trainings.close()


@pytest.fixture(scope="module")
def alone(trainings: Trainings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an undisturbed training by one process."""
    folder = tmp_path_factory.mktemp("alone")
    [end] = trainings.train(folder, 1, {})
    assert end.code == 0, end.stderr
    return folder


@pytest.mark.parametrize("deaths", [{0: 5, 3: 7}, {1: 5, 2: 7}])
def test_a_killed_server_and_a_killed_standby_change_nothing(
    trainings: Trainings, alone: Path, tmp_path: Path, deaths: dict[int, int]
) -> None:
    ends = trainings.train(tmp_path, 6, {**WITH_STANDBYS, "DEATHS": json.dumps(deaths)})
    codes = [-signal.SIGKILL if rank in deaths else 0 for rank in range(6)]
    assert [end.code for end in ends] == codes, [end.stderr for end in ends]
    leader = 2 if 0 in deaths else 0
    assert '"validation_loss": ' in ends[leader].stdout  # this rank reports to the end
    assert loss_in(tmp_path) == pytest.approx(loss_in(alone), abs=1e-5)
    for weight, expected in zip(weights_in(tmp_path).values(), weights_in(alone).values(), strict=True):
        torch.testing.assert_close(weight, expected, rtol=0, atol=1e-4)


def test_another_number_of_servers_goes_on_from_a_checkpoint_of_a_server_that_took_over(
    trainings: Trainings, alone: Path, tmp_path: Path
) -> None:
    first = trainings.train(tmp_path, 6, {**WITH_STANDBYS, "DEATHS": '{"0": 2}'}, steps=8)
    assert [end.code for end in first] == [-signal.SIGKILL, 0, 0, 0, 0, 0], [end.stderr for end in first]
    ends = trainings.train(tmp_path, 5, {**SERVED, "SERVERS": "3", "JOB_ATTEMPT": "2"})
    assert [end.code for end in ends] == [0] * 5, [end.stderr for end in ends]
    assert re.search("resuming from step [48], saved by attempt 1", ends[0].stdout)  # a save may take long
    assert loss_in(tmp_path) == pytest.approx(loss_in(alone), abs=1e-5)


def test_asynchronous_servers_go_on_without_a_killed_worker(trainings: Trainings, tmp_path: Path) -> None:
    ends = trainings.train(
        tmp_path, 5, {**SERVED, "SYNCHRONY": "asynchronous", "DEATHS": '{"4": 3}'}, steps=60
    )
    assert [end.code for end in ends] == [0] * 4 + [-signal.SIGKILL], [end.stderr for end in ends]
    assert loss_in(tmp_path) < 5.2


def test_a_lost_worker_ends_a_synchronous_group_with_an_error_that_names_it(
    trainings: Trainings, tmp_path: Path
) -> None:
    ends = trainings.train(tmp_path, 4, {**SERVED, "DEATHS": '{"3": 2}'})
    assert [end.code for end in ends] == [1, 1, 1, -signal.SIGKILL]
    assert ends[0].stderr.startswith(
        "error: worker 3 is gone or does not answer: an update needs 2 workers, and the number left is 1"
    )
    for other in ends[1:3]:
        assert re.match("error: parameter server [01] is gone or does not answer", other.stderr)


def test_a_lost_server_without_a_standby_ends_the_group_with_an_error_that_names_it(
    trainings: Trainings, tmp_path: Path
) -> None:
    ends = trainings.train(tmp_path, 4, {**SERVED, "DEATHS": '{"1": 2}'})
    assert [end.code for end in ends] == [1, -signal.SIGKILL, 1, 1]
    # One rank notices the lost server, and ends. Others may notice first that this rank is gone.
    assert "error: parameter server 1 is gone or does not answer\n" in [end.stderr for end in ends]


def test_sigterm_saves_a_checkpoint_and_no_standby_takes_over(trainings: Trainings, tmp_path: Path) -> None:
    settings = {**WITH_STANDBYS, "SERVERS": "1", "CHECKPOINT_GRACE_SECONDS": "200"}
    group = trainings.start(tmp_path, 4, settings, steps=100_000)
    while "progress" not in (line := first_line_of(group[0])):
        assert line, end_of(group[0])
    for process in reversed(group):  # the leader last: until it ends, the others do not
        process.send_signal(signal.SIGTERM)
    ends = [end_of(process) for process in group]
    assert [end.code for end in ends] == [128 + signal.SIGTERM] * 4, [end.stderr for end in ends]
    assert "ending on SIGTERM after step" in ends[0].stdout
    assert [end.stderr for end in ends] == [""] * 4
