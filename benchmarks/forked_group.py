"""Groups of processes on this machine. They are forked, so that they need not import PyTorch again."""

import json
import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.multiprocessing.spawn import start_processes
from trainer_kit.group import Group, join


def run(main: Callable[[Group], Any], size: int) -> list[Any]:
    """Call `main` in each process of a group, and return the results by rank. Results must be JSON values."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        start_processes(  # type: ignore[no-untyped-call]
            _be_a_rank, (main, size, folder, _free_port()), nprocs=size, start_method="fork"
        )
        return [json.loads((Path(folder) / str(rank)).read_text()) for rank in range(size)]


def _be_a_rank(rank: int, main: Callable[[Group], Any], size: int, folder: str, port: int) -> None:
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    os.environ |= {name: str(value) for name, value in places.items()}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    with join() as group:
        (Path(folder) / str(rank)).write_text(json.dumps(main(group)))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
