"""The example for other frameworks runs and resumes; the table names groups that exist."""

import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trainer_kit.checkpoints import groups

PAGE = (Path(__file__).parents[3] / "docs" / "checkpoints.md").read_text()


def test_the_example_without_pytorch_runs_and_resumes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    [example] = [
        block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "arrays.kept" in block
    ]

    def losses(attempt: int) -> list[float]:
        monkeypatch.setenv("JOB_ATTEMPT", str(attempt))
        np.random.seed(1)
        names: dict[str, Any] = {}
        exec(example, names)
        found: list[float] = names["state"]["losses"]
        return found

    monkeypatch.delenv("CHECKPOINT_URI", raising=False)
    expected = losses(1)
    monkeypatch.setenv("CHECKPOINT_URI", str(tmp_path))
    monkeypatch.setenv("CHECKPOINT_EVERY_STEPS", "30")
    assert losses(1) == losses(2) == expected
    assert "resuming from step" in caplog.text


def test_the_table_names_groups_that_exist() -> None:
    named = set(re.findall(r"`groups\.(\w+)", PAGE))
    assert {"tensorflow", "jax", "horovod", "mpi", "alone", "Summing"} <= named
    assert all(hasattr(groups, name) for name in named)
