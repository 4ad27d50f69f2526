import os
import socket
import subprocess
import sys
from typing import Any, NoReturn

import pytest
from trainer_kit import steps
from trainer_kit.errors import GroupError, ParameterError
from trainer_kit.group import Place, join
from trainer_kit.meeting import Meeting
from trainer_kit.rendezvous import meet
from trainer_kit.steps import Steps

from tests.support.patience import PATIENCE
from tests.support.ports import free_port

GROUP_VARIABLES = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in GROUP_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_a_process_without_group_variables_is_alone() -> None:
    with join() as group:
        assert (group.rank, group.size, group.is_master) == (0, 1, True)
        assert group.total(1, 2.5) == [1, 2.5]


def test_a_single_process_ignores_the_master(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_PORT", "0")
    with join() as group:
        assert group.size == 1


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE"),
        ({"WORLD_SIZE": "3"}, "RANK"),
        ({"WORLD_SIZE": "3", "RANK": "3"}, "RANK"),
        ({"WORLD_SIZE": "3", "RANK": "0", "LOCAL_WORLD_SIZE": "4"}, "LOCAL_WORLD_SIZE"),
        ({"WORLD_SIZE": "3", "RANK": "0", "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "2"}, "LOCAL_RANK"),
    ],
)
def test_invalid_group_variables_are_named(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], named: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ParameterError, match=f"^{named} "):
        Place.from_environment()


def test_waiting_for_a_missing_master_times_out() -> None:
    meeting = Meeting("127.0.0.1", free_port(), timeout=1)
    with pytest.raises(GroupError, match=f"could not reach the master at {meeting} within 1 s: .*refused"):
        meet(meeting, rank=1, size=2, backend="gloo")


def test_waiting_for_a_master_without_an_address_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without a DNS server, or with a slow one, the look-up would fail with another error.
    def look_up(*_: Any, **__: Any) -> NoReturn:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    meeting = Meeting("nowhere.invalid", port=12356, timeout=1)
    with pytest.raises(GroupError, match=f"could not reach the master at {meeting} within 1 s: .*not known"):
        meet(meeting, rank=1, size=2, backend="gloo")


def test_steps_and_phases_of_a_group_are_signs_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    signs = Steps()
    monkeypatch.setattr(steps, "OF_PROCESS", signs)
    with join() as group:
        group.barrier()
        group.step(3)
        with group.phase("evaluation"):
            assert signs.standing().phase == "evaluation"
    assert (signs.standing().step, signs.standing().phase) == (3, "training")


WAITING = """
import hashlib, os, time, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from trainer_kit import group, steps

rank = int(os.environ["RANK"])
dist.init_process_group("gloo")

def trained(wrap, steps_of, pause):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    whole = wrap(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(rank)
    for step in range(1, 13):
        time.sleep(pause)
        loss = whole(torch.randn(16, 32)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps_of.step(step)
    return b"".join(each.detach().numpy().tobytes() for each in model.parameters())

ours = group.Group(rank, 3, torch.device("cpu"))
plain = trained(lambda model: group._with_final_buckets(DistributedDataParallel(model)), steps.Steps(), 0)
assert trained(ours.wrap, steps.OF_PROCESS, 0.3 if rank == 2 else 0) == plain
standing = steps.OF_PROCESS.standing()
assert not standing.waiting
print(standing.step_seconds - standing.waiting_seconds, flush=True)
dist.destroy_process_group()
"""


def test_a_backward_pass_counts_as_waiting_for_a_slow_rank_and_changes_no_bit() -> None:
    port = str(free_port())
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", WAITING],
            env=os.environ
            | {"RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    own = [float(rank.communicate(timeout=PATIENCE)[0]) for rank in ranks]
    assert own[2] > max(own[:2])
