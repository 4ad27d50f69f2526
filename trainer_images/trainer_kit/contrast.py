"""Contrastive learning over a group: the negatives of an example come from all ranks, not only from the
example's own rank.

    loss = contrast.info_nce(encode(views), encode(other_views))

With n ranks of b examples, each query has n x b - 1 negatives. The gradients equal the gradients of one
process with all examples: each rank gets back the gradients of other ranks' losses with respect to its keys
(Chen et al., SimCLR, ICML 2020).

With a queue, the negatives are keys of earlier steps, from a key encoder that slowly follows the query
encoder (He et al., MoCo, CVPR 2020):

    loss = contrast.info_nce(queries, keys, queue.keys())
    queue.put(keys)
    contrast.follow(key_encoder, query_encoder)
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional


def gathered(rows: Tensor) -> Tensor:
    """Return the rows of all ranks, in the order of the ranks. All ranks must have equally many rows.

    The result is differentiable: the backward pass adds up the gradients of all ranks' losses for this rank's
    rows. All ranks must call this function, and its backward pass, in the same order.
    """
    if _size() == 1:
        return rows
    together: Tensor = _Gathered.apply(rows)  # type: ignore[no-untyped-call]
    return together


def info_nce(
    queries: Tensor, keys: Tensor, negatives: Tensor | None = None, *, temperature: float = 0.1
) -> Tensor:
    """Return the mean loss of this rank's queries.

    `queries` and `keys` have the shape (rows, width). The positive of each query is the key in the same row.
    By default, the negatives of a query are all other keys of all ranks. If `negatives`, of shape
    (any, width), are given, they are used instead of the other keys. Then negatives get no gradients, and the
    ranks exchange nothing. Rows are normalized first.

    The average of the ranks' gradients of this loss (`group.wrap`) equals the gradient of one process with
    all examples. Raises ValueError if the shapes of `queries` and `keys` differ or do not have two
    dimensions, or if the temperature is not positive.
    """
    if queries.shape != keys.shape or queries.dim() != 2:
        raise ValueError(
            f"queries and keys must have the same shape (rows, width), but have {tuple(queries.shape)} and "
            f"{tuple(keys.shape)}"
        )
    if temperature <= 0:
        raise ValueError(f"temperature must be above 0, but is {temperature}")
    queries, keys = functional.normalize(queries, dim=1), functional.normalize(keys, dim=1)
    if negatives is None:
        scores = queries @ gathered(keys).T
        own = torch.arange(len(queries), device=queries.device) + _rank() * len(queries)
    else:
        own_scores = (queries * keys).sum(1, keepdim=True)
        scores = torch.cat([own_scores, queries @ functional.normalize(negatives.detach(), dim=1).T], 1)
        own = torch.zeros(len(queries), dtype=torch.long, device=queries.device)
    return functional.cross_entropy(scores / temperature, own)


class Queue(nn.Module):
    """The newest keys of all ranks. Every rank has the same keys, and they are part of the module's state."""

    def __init__(self, size: int, width: int) -> None:
        """Begin with `size` random keys. They are the same in all ranks if the ranks have the same seed."""
        super().__init__()
        self.register_buffer("_keys", functional.normalize(torch.randn(size, width), dim=1))
        self.register_buffer("_place", torch.zeros((), dtype=torch.long))
        self._keys: Tensor
        self._place: Tensor

    def keys(self) -> Tensor:
        """Return the keys, in no particular order."""
        return self._keys.clone()

    @torch.no_grad()
    def put(self, keys: Tensor) -> None:
        """Replace the oldest keys with the new keys of all ranks. Every rank must call this.

        Raises ValueError if there are more new keys than the queue holds.
        """
        new = functional.normalize(gathered(keys.detach()), dim=1).to(self._keys.dtype)
        size = len(self._keys)
        if len(new) > size:
            raise ValueError(f"the ranks have {len(new)} keys together, but the queue holds {size}")
        places = (torch.arange(len(new), device=new.device) + self._place) % size
        self._keys[places] = new
        self._place.copy_((self._place + len(new)) % size)


@torch.no_grad()
def follow(slow: nn.Module, fast: nn.Module, *, momentum: float = 0.999) -> None:
    """Move the parameters of `slow` towards those of `fast`, and copy the buffers of `fast` to `slow`.

    `momentum` is the weight of the old parameters of `slow`.
    """
    for own, target in zip(slow.parameters(), fast.parameters(), strict=True):
        own.lerp_(target, 1 - momentum)
    for buffer, source in zip(slow.buffers(), fast.buffers(), strict=True):
        buffer.copy_(source)


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, rows: Tensor) -> Tensor:
        parts = [torch.empty_like(rows) for _ in range(_size())]
        dist.all_gather(parts, rows.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(_: Any, *gradients: Any) -> Tensor:
        [gradient] = gradients
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        part: Tensor = total.chunk(_size())[_rank()]
        return part


def _size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0
