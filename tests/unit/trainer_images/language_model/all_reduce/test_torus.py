"""A rank of a torus that dies ends all others: its neighbours first, then theirs."""

import re
import signal
from collections.abc import Sequence
from pathlib import Path

from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.groups import ROOT
from tests.support.trainers.launcher import Launcher, end_of

PROGRAM = """
import os, torch
from trainer_kit import process
from language_model.all_reduce.choosing import by_hand
from language_model.all_reduce.topology import Topology
from language_model.all_reduce.wire import Wire

def train(group):
    all_reduce, tensor = by_hand(Topology.TORUS, group.size, 1), torch.ones(1000)
    all_reduce(tensor, Wire())
    assert tensor.eq(group.size).all()
    if group.rank == 5:
        os.kill(os.getpid(), 9)
    all_reduce(tensor, Wire())

process.main(train)
"""


def test_all_ranks_of_a_torus_end_with_one_that_dies(tmp_path: Path, forks: Sequence[ForkServer]) -> None:
    with Launcher(tmp_path, forks=forks) as launcher:
        group = launcher.start_group(6, "-c", PROGRAM, PYTHONPATH=f"{ROOT}:{ROOT / 'trainer_images'}")
        *others, lost = (end_of(process) for process in group)
    assert lost.code == -signal.SIGKILL
    assert [rank.code for rank in others] == [1] * 5
    for rank in others:
        assert re.search("Connection (closed|reset) by peer|Broken pipe", rank.stderr), rank.stderr
