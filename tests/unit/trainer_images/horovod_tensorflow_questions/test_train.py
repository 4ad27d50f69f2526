"""Horovod groups on TensorFlow, from environment variables only."""

import signal
from pathlib import Path

import pytest

from tests.support.trainers.frameworks import (
    GROUP_BATCH,
    KILLED,
    Trained,
    all_succeed,
    check_resumption,
    saving,
    start_horovod,
)
from tests.support.trainers.launcher import Launcher, end_of

MODULE = "horovod_tensorflow_questions.train"


def test_two_processes_learn_what_one_learns(
    horovod_tensorflow: Launcher, questions_uri: str, tmp_path: Path
) -> None:
    losses = {}
    for size in (1, 2):
        group = start_horovod(
            horovod_tensorflow, size, "-m", MODULE,
            TRAINING_DATA_URI=questions_uri, MODEL_URI=str(tmp_path / f"model-{size}"),
            EPOCHS="4", BATCH_SIZE=str(GROUP_BATCH // size),
        )  # fmt: skip
        trained = Trained(tmp_path / f"model-{size}", all_succeed(group))
        losses[size] = trained.losses
        assert trained.accuracy >= 0.75
        assert (trained.model / "model.keras").is_file()
        assert {end.stdout for end in trained.ends[1:]} <= {""}  # only rank 0 prints
    assert len(losses[1]) == 4
    assert losses[2] == pytest.approx(losses[1], rel=1e-4)


def test_a_killed_process_ends_the_other_and_the_next_attempt_resumes(
    horovod_tensorflow: Launcher, questions_uri: str, tmp_path: Path
) -> None:
    places = {"TRAINING_DATA_URI": questions_uri, "MODEL_URI": str(tmp_path / "model")}
    places |= {"EPOCHS": "2", "BATCH_SIZE": str(GROUP_BATCH // 2)}
    saved, killed = tmp_path / "checkpoints", {"KILL_AT": "47", "KILL_RANK": "1"}
    group = start_horovod(horovod_tensorflow, 2, KILLED, MODULE, **places, **saving(saved, 1, **killed))
    master, lost = (end_of(process) for process in group)
    assert lost.code == -signal.SIGKILL
    assert master.code == 1, master.stderr

    again = start_horovod(horovod_tensorflow, 2, "-m", MODULE, **places, **saving(saved, 2))
    check_resumption(master, all_succeed(again)[0], killed_at=47)
