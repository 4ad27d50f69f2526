"""The flight recorder of PyTorch, with gloo, says which rank left out a collective operation."""

from collections.abc import Sequence
from pathlib import Path

from job_tracker.reports.collectives import Collective
from job_tracker.tracking.collectives import behind
from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.groups import outcome_of
from tests.support.trainers.launcher import Launcher


def test_a_rank_that_left_out_an_operation_is_seen(tmp_path: Path, forks: Sequence[ForkServer]) -> None:
    with Launcher(tmp_path, forks=forks) as launcher:
        [ranks] = outcome_of(launcher, "tests.support.trainers.programs.left_out", 3)
    known = {rank: [Collective(**each) for each in several] for rank, several in enumerate(ranks)}
    assert behind(known) == {
        1: "it has done #1 all_reduce [[1]] of default_pg, and others are in #2 all_reduce [[3]]"
    }
