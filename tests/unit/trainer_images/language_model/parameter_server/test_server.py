"""Real groups: a server, its workers, and what goes between them."""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.groups import ROOT
from tests.support.trainers.launcher import Launcher, end_of
from tests.support.trainers.parameter_server import (
    SERVED,
    UPDATES,
    batch_of,
    global_batch,
    single_process,
)

Trained = dict[int, list[dict[str, Any]]]


def test_asynchronous_with_one_worker_is_plain_sgd_bit_for_bit(trained: Trained) -> None:
    server, worker = (rank["asynchronous"] for rank in trained[2])
    alone = single_process(batch_of(1, number) for number in range(UPDATES))
    assert server["weights"] == alone.tolist()
    assert worker == {"count": UPDATES, "versions": list(range(UPDATES))}


@pytest.mark.parametrize("size", [2, 4])
def test_synchronous_is_one_process_with_the_whole_batch(trained: Trained, size: int) -> None:
    server = trained[size][0]["synchronous"]
    alone = single_process(global_batch(size - 1, number) for number in range(UPDATES))
    torch.testing.assert_close(
        torch.tensor(server["weights"], dtype=torch.float64), alone, rtol=1e-12, atol=1e-13
    )
    assert server["staleness"] == {"0": UPDATES * (size - 1)}


@pytest.mark.parametrize("size", [2, 4])
def test_no_backup_worker_is_synchronous(trained: Trained, size: int) -> None:
    assert trained[size][0]["backup_workers"] == trained[size][0]["synchronous"]


def test_no_worker_waits_for_one_whose_gradient_is_late(trained: Trained) -> None:
    server, first, _, late = (rank["late"] for rank in trained[4])
    assert len(server["losses"]) == UPDATES
    assert server["dropped"] >= 1
    assert server["staleness"] == {"0": 2 * UPDATES}
    assert first["versions"][:3] == [0, 1, 2]
    assert late["versions"][0] == 0
    assert all(version >= 2 for version in late["versions"][1:])


def test_asynchronous_workers_do_not_wait_for_each_other(trained: Trained) -> None:
    server, *workers = (rank["asynchronous"] for rank in trained[4])
    computed = sum(worker["count"] for worker in workers)
    assert sum(server["staleness"].values()) == UPDATES
    assert UPDATES <= computed <= UPDATES + len(workers) - 1  # those on their way at the end are not used
    assert server["losses"][-1] < server["losses"][0]


def test_the_language_model_learns_synchronously_what_one_process_learns(trained: Trained) -> None:
    for name, of_one in (("synchronous", "plain"), ("growing", "growing")):
        [alone] = (rank[of_one] for rank in trained[1])
        served = trained[3][0][name]
        assert served["losses"] == pytest.approx(alone["losses"], abs=1e-5)
        assert served["weights"] == pytest.approx(alone["weights"], abs=1e-4)


@pytest.mark.parametrize("synchrony", SERVED)
def test_the_language_model_learns_with_any_synchrony(trained: Trained, synchrony: str) -> None:
    server, *workers = (rank[synchrony] for rank in trained[3])
    [alone] = (rank["plain"] for rank in trained[1])
    assert len(server["losses"]) == len(alone["losses"])
    assert server["losses"][-1] < alone["losses"][0] - 0.5 * (alone["losses"][0] - alone["losses"][-1])
    assert server["counts"]["staleness_mean"] <= server["counts"]["staleness_max"]
    assert all(worker["weights"] == server["weights"] for worker in workers)


def test_a_lost_worker_ends_the_group_with_an_error_that_names_it(
    forks: Sequence[ForkServer], tmp_path: Path
) -> None:
    program = """
import os, torch
from trainer_kit import process
from language_model.parameter_server.transport import *
from language_model.parameter_server.running import *
from language_model.parameter_server.server import ParameterServer
from language_model.parameter_server.synchrony import Rule

def train(group):
    model = torch.nn.Linear(2, 1)
    if group.is_master:
        sgd = torch.optim.SGD(model.parameters())
        server = ParameterServer(model, sgd, Rule(2, in_step=True), lambda _: 0.1)
        for update in serve(server, ServerTransport(torch.empty(3)), 100):
            pass
    def learn(version):
        if group.rank == 2 and version == 1:
            os.kill(os.getpid(), 9)
        torch.autograd.backward(model(torch.ones(1, 2)).sum())
        return 0.0
    work(model, learn, WorkerTransport(torch.empty(3)))

process.main(train)
"""
    with Launcher(tmp_path, forks=forks) as launcher:
        group = launcher.start_group(3, "-c", program, PYTHONPATH=f"{ROOT}:{ROOT / 'trainer_images'}")
        server, other, lost = (end_of(process) for process in group)
    assert lost.code == -signal.SIGKILL
    assert server.code == other.code == 1
    assert server.stderr.startswith("error: worker 2 is gone or does not answer: ")
    assert other.stderr.startswith("error: the parameter server is gone or does not answer: ")
