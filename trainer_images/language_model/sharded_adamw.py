"""ZeRO-1 and ZeRO-2: AdamW over this data rank's share of the flat parameters.

S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020.
With ZeRO-1 and with ZeRO-2, each of n data ranks sends 2 (n-1)/n of the parameters in a step, as
DistributedDataParallel does.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from language_model.choices import Strategy
from language_model.flat_parameters import FlatParameters
from language_model.gradient_buckets import Bucket, GradientBuckets, OwnedBucket, ScatteredBucket
from language_model.layout import Layout
from language_model.local_part import local

MOMENTS = ("exp_avg", "exp_avg_sq")
MEGABYTE = 2**20


class _State(dict[Tensor, dict[str, Any]]):
    """The state of the optimizer for shares of parameters.

    For a whole parameter, this returns the same names with None as values: torch.distributed.checkpoint reads
    only the names.
    """

    def __missing__(self, _: Tensor) -> dict[str, Any]:
        return dict.fromkeys(("step", *MOMENTS))


class ShardedAdamW(Optimizer):
    """AdamW whose state is divided among the data ranks. With ZeRO-2, the gradients are divided, too.

    Every rank must make the same calls. `state` has this rank's share. `state_dict` gathers the moments and
    names them by parameter, so that checkpoints do not depend on the number of ranks. While `state_dict`
    runs, each rank holds all moments of its part of the model.
    """

    def __init__(self, model: nn.Module, layout: Layout, group: dist.ProcessGroup, **options: Any) -> None:
        """Replace the parameters of `model` by views of a flat vector.

        From then on, `gradients` takes each gradient as soon as a backward pass has computed it.
        """
        self._flat = FlatParameters(model, group.size())
        self._buckets = buckets_of(layout, self._flat, group)
        self._group = group
        pipelined = layout.micro_batches if layout.pipeline > 1 else 1  # else WholeDepth divides the loss
        self.gradients = GradientBuckets(
            model,
            self._flat,
            self._buckets,
            micro_batches=layout.micro_batches,
            scale=1 / (group.size() * pipelined),
            in_flight=1 if layout.strategy is Strategy.ZERO2 else len(self._buckets),
        )
        self._shares = [
            (bucket, self._part(self._flat.vector, bucket)) for bucket in self._buckets if bucket.own
        ]
        self._inner = AdamW([share for _, share in self._shares], **options)
        super().__init__(model.parameters(), self._inner.defaults)
        self.state = self._inner.state = _State()  # type: ignore[assignment]  # defaultdict in PyTorch
        for _, share in self._shares:
            moments = {name: torch.zeros_like(share) for name in MOMENTS}
            self.state[share] = {"step": torch.tensor(0.0), **moments}
        self.register_step_pre_hook(lambda *_: self.gradients.finish())

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002
        """Step this rank's share, and gather the parameters."""
        for bucket, share in self._shares:
            share.grad = bucket.own_gradient
        for inner, outer in zip(self._inner.param_groups, self.param_groups, strict=True):
            inner.update({name: value for name, value in outer.items() if name != "params"})
        self._inner.step()
        self.zero_grad()
        self._gather(self._flat.vector)

    def zero_grad(self, set_to_none: bool = True) -> None:  # noqa: ARG002
        """Free the gradients."""
        self._inner.zero_grad()
        self.gradients.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return the state as AdamW has it for whole parameters."""
        [group] = self.param_groups
        moments = {name: self._whole(name) for name in MOMENTS}
        steps = next((state["step"] for state in self.state.values()), torch.tensor(0.0))
        state = {
            number: {
                "step": steps.clone(),
                **{name: self._flat.view(moments[name], parameter) for name in MOMENTS},
            }
            for number, parameter in enumerate(group["params"])
        }
        return {"state": state, "param_groups": [{**group, "params": list(state)}]}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take this rank's share of a state that `state_dict` or AdamW has returned."""
        [group], [loaded] = self.param_groups, state_dict["param_groups"]
        group.update({name: value for name, value in loaded.items() if name != "params"})
        states = [state_dict["state"][name] for name in loaded["params"]]
        for name in MOMENTS:
            vector = torch.zeros_like(self._flat.vector)
            for parameter, state in zip(group["params"], states, strict=True):
                local(self._flat.view(vector, parameter)).copy_(local(state[name]))
            for bucket, share in self._shares:
                self.state[share][name].copy_(self._part(vector, bucket))
        for _, share in self._shares:
            self.state[share]["step"].copy_(states[0]["step"])

    def _whole(self, name: str) -> Tensor:
        vector = torch.zeros_like(self._flat.vector)
        for bucket, share in self._shares:
            self._part(vector, bucket).copy_(self.state[share][name])
        self._gather(vector)
        return vector

    def _gather(self, vector: Tensor) -> None:
        """Fill the vector on all ranks: each rank contributes the elements that it owns."""
        if isinstance(self._buckets[0], OwnedBucket):  # the elements of a rank are adjacent
            share = len(vector) // self._group.size()
            places = [
                (range(len(vector)), range(share * self._group.rank(), share * (self._group.rank() + 1)))
            ]
        else:
            places = [(bucket.place, bucket.own) for bucket in self._buckets]
        works = [
            dist.all_gather_single(
                vector[place.start : place.stop], vector[own.start : own.stop], self._group, async_op=True
            )
            for place, own in places
        ]
        for work in works:
            work.wait()

    @staticmethod
    def _part(vector: Tensor, bucket: Bucket) -> Tensor:
        return vector[bucket.own.start : bucket.own.stop]


def buckets_of(layout: Layout, flat: FlatParameters, group: dist.ProcessGroup) -> list[Bucket]:
    """Divide the flat vector into buckets of at most BUCKET_MB MiB.

    With ZeRO-2, the vector is first divided among the ranks, so each bucket has one owner.
    """
    ranks, length, device = group.size(), len(flat.vector), flat.vector.device
    size = layout.bucket_mb * MEGABYTE // flat.vector.element_size() // ranks * ranks
    if layout.strategy is Strategy.ZERO1:
        return [ScatteredBucket(place, group, device) for place in _cut(range(length), size)]
    share = length // ranks
    return [
        OwnedBucket(place, group, device, owner)
        for owner in range(ranks)
        for place in _cut(range(owner * share, (owner + 1) * share), size)
    ]


def _cut(whole: range, size: int) -> list[range]:
    return [whole[start : start + size] for start in range(0, len(whole), size)]
