"""Sums tensors in a group by our algorithms and by the library, and returns the results."""

import hashlib

import torch
import torch.distributed as dist
from language_model.all_reduce.choosing import AllReduce, by_hand
from language_model.all_reduce.hook import register
from language_model.all_reduce.topology import BY_HAND, Topology
from language_model.all_reduce.wire import Wire
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from trainer_kit.group import Group

NODE_SIZE = 3
COUNTED = 24 * 10 * 7
"""A number of elements that is divisible by every group size of the tests."""
CASES = [
    *((torch.float32, count) for count in (0, 1, 5, 1001, COUNTED)),
    *((dtype, count) for dtype in (torch.float64, torch.bfloat16) for count in (7, COUNTED)),
]
STEPS = 3


def main(group: Group) -> list[dict[str, object]]:
    results: list[dict[str, object]] = [{"topology": Topology.LIBRARY, "losses": losses(group, None)}]
    for topology in BY_HAND:
        all_reduce = by_hand(topology, group.size, NODE_SIZE)
        results += [
            {"topology": topology, **compared(all_reduce, group.rank, count, dtype)} for dtype, count in CASES
        ]
        results.append({"topology": topology, "losses": losses(group, all_reduce)})
    return results


def compared(all_reduce: AllReduce, rank: int, count: int, dtype: torch.dtype) -> dict[str, object]:
    """Sum a tensor by our algorithm and by the library, and return the comparison."""
    own = torch.randn(count, generator=torch.Generator().manual_seed(rank)).to(dtype)
    wire, ours, theirs = Wire(), own.clone(), own.double()
    all_reduce(ours, wire)
    dist.all_reduce(theirs)
    return {
        "dtype": str(dtype),
        "count": count,
        "error": (ours.double() - theirs).abs().max().item() if count else 0.0,
        "digest": hashlib.sha256(ours.view(torch.uint8).numpy().tobytes()).hexdigest(),
        "tensor_bytes": own.nbytes,
        "bytes": wire.sent.bytes,
        "messages": wire.sent.messages,
    }


def losses(group: Group, all_reduce: AllReduce | None) -> list[float]:
    """Return the losses of some steps with DistributedDataParallel on this process's share of the batches."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(9, 17), nn.Tanh(), nn.Linear(17, 3)).double()
    replica = DistributedDataParallel(model)
    if all_reduce:
        register(replica, all_reduce, Wire())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    own = torch.Generator().manual_seed(group.rank)
    seen = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        inputs = torch.randn(8, 9, generator=own, dtype=torch.float64)
        loss = (replica(inputs) - inputs[:, :3]).square().mean()
        torch.autograd.backward(loss)
        optimizer.step()
        seen.append(loss.item())
    return seen
