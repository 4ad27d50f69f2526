"""Rank 1 leaves out an all-reduce for a while. Meanwhile, all ranks record their latest operations, and
return them.
"""

import time
from dataclasses import asdict
from typing import Any

import torch
import torch.distributed as dist
from trainer_kit import collectives
from trainer_kit.group import Group


def main(group: Group) -> list[dict[str, Any]]:
    group.total(1)
    store = dist.distributed_c10d._get_default_store()
    values = torch.ones(3)
    work = dist.all_reduce(values, async_op=True) if group.rank != 1 else None
    while group.rank == 1 and not collectives.last()[0].done:
        time.sleep(0.001)  # gloo's thread records the end of an operation after it has woken the caller
    seen = [asdict(each) for each in collectives.last()]
    store.set(f"seen by {group.rank}", "yes")
    store.wait([f"seen by {rank}" for rank in range(group.size)])
    work = work or dist.all_reduce(values, async_op=True)
    assert work is not None
    work.wait()
    assert "  default_pg #2 all_reduce [[3]]" in collectives.lines()
    return seen
