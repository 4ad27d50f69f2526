"""Groups of processes that are forked from one process with PyTorch, because importing PyTorch takes the most
time.

python -m tests.support.trainers.groups PROGRAM SIZE...

calls `main(group)` of the module PROGRAM in a group of each size, one after the other, and prints the results
as JSON: a list by group of lists by rank.
"""

import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.multiprocessing.spawn import start_processes
from trainer_kit.group import Group, join

from tests.support.patience import PATIENCE
from tests.support.ports import free_port
from tests.support.trainers.launcher import Launcher, end_of

ROOT = Path(__file__).parents[3]

Outcome = list[list[Any]]


def outcome_of(launcher: Launcher, program: str, *sizes: int, within: float = PATIENCE) -> Outcome:
    """Run the module `program` in groups of these sizes, and return the results by group and rank.

    All must succeed. `within` is that of `end_of`.
    """
    path = f"{ROOT}:{ROOT / 'trainer_images'}"
    ended = end_of(launcher.start("-m", __name__, program, *map(str, sizes), PYTHONPATH=path), within=within)
    assert ended.code == 0, ended.stderr
    outcome: Outcome = json.loads(ended.stdout)
    return outcome


def run(main: Callable[[Group], Any], size: int) -> list[Any]:
    """Call `main` in each process of a group, and return the results by rank."""
    start_processes(  # type: ignore[no-untyped-call]
        _be_a_rank, (main, size, free_port()), nprocs=size, start_method="fork"
    )
    return [json.loads(_kept(rank).read_text()) for rank in range(size)]


def _be_a_rank(rank: int, main: Callable[[Group], Any], size: int, port: int) -> None:
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    os.environ |= {name: str(value) for name, value in places.items()}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with join() as group:
        _kept(rank).write_text(json.dumps(main(group)))


def _kept(rank: int) -> Path:
    return Path(f"given-by-{rank}.json")


if __name__ == "__main__":
    program = importlib.import_module(sys.argv[1]).main
    print(json.dumps([run(program, int(size)) for size in sys.argv[2:]]))
