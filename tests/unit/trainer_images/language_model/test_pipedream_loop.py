"""The reports of a PipeDream training, and its failure."""

from collections.abc import Sequence
from pathlib import Path

from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.groups import outcome_of
from tests.support.trainers.launcher import Launcher
from tests.support.trainers.programs import pipedream

STEPS = 8

PATIENCE = 300
"""Seconds. On a busy machine, the start of PyTorch alone takes many of them."""


def test_the_first_stage_reports_each_loss_once_and_all_stages_fail_alike(
    forks: Sequence[ForkServer], tmp_path: Path
) -> None:
    with Launcher(tmp_path, forks=forks) as launcher:
        [[first, second]] = outcome_of(launcher, pipedream.__name__, 2, within=PATIENCE)
    assert len(first["losses"]) == len(second["losses"]) == STEPS
    assert first["losses"] == second["losses"]
    assert first["returned"] == second["returned"]
    assert first["returned"]["staleness_max"] == 1
    # Stage 0 takes all steps except its first one with old weights. Stage 1 takes no step with old weights.
    assert first["returned"]["staleness_mean"] == (STEPS - 1) / (2 * STEPS)
    assert {first["error"], second["error"]} == {"the loss is not finite in step 2: try a smaller LR"}
