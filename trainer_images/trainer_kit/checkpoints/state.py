"""What a training run is made of: gathered to be saved, and put back."""

import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.stateful import Stateful
from torch.optim import Optimizer

from trainer_kit.checkpoints import random_state
from trainer_kit.checkpoints.exchange import Exchange
from trainer_kit.checkpoints.packing import Packing
from trainer_kit.checkpoints.parts import PartsReader, PlainPlanner
from trainer_kit.errors import TrainingError, UnfitError
from trainer_kit.group import Group

# A group of one has no torch.distributed, which is as it should be.
warnings.filterwarnings("ignore", "torch.distributed is disabled, unavailable or uninitialized")

StateDict = dict[str, Any]

# Each value by the name of its parameter: so processes that hold different parts of the model (the stages
# of a pipeline, the shares of an optimizer) can read what others of other parts have written.
_BY_NAME = StateDictOptions(flatten_optimizer_state_dict=True)


@dataclass(frozen=True)
class State:
    """The things of one run that change while it trains."""

    group: Group
    model: nn.Module
    optimizers: Sequence[Optimizer]
    others: Mapping[str, Stateful]
    """Whatever else has a state, the same in all processes: a schedule, the place in the data."""
    packing: Packing

    def gather(self) -> StateDict:
        """The state as torch.distributed.checkpoint takes it.

        Tensors of the model and of its optimizers are those in use, not copies; each process gives
        its own shards of them, and its own random state. The rest is rank 0's.
        """
        tensors = self._tensors()
        # An object that could not be loaded again is refused now, and not when the work is to go on.
        self.packing.pack([value for value in _values(tensors) if not isinstance(value, torch.Tensor)])
        others = self.packing.pack({name: other.state_dict() for name, other in self.others.items()})
        common = {"others": others} if self.group.is_master else {}
        return {**tensors, **common, self._own(): self.packing.pack(random_state.current())}

    def restore(self, reader: PartsReader, world_size: int, exchange: Exchange) -> None:
        """Puts back what `reader` reads, which `world_size` processes saved.

        A rank that was not there then keeps the random state that it has. Raises UnfitError when the
        model or an optimizer has other parts than the one that was saved; they are of no use then.
        """
        state = {**self._tensors(), "others": b""}
        if self.group.rank < world_size:
            state[self._own()] = b""
        try:
            group = exchange.process_group
            planner = PlainPlanner(self.packing)
            load(state, storage_reader=reader, planner=planner, process_group=group, no_dist=group is None)
        except CheckpointException as error:
            if isinstance(cause := _cause_of(error), TrainingError):
                raise cause from error
            raise UnfitError(f"it does not fit this training: {reason_of(error)}") from error
        plain: StateDict = {}
        exchange.agreed(lambda: plain.update(self._unpacked(state)))
        set_state_dict(
            self.model,
            self.optimizers,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
            options=_BY_NAME,
        )
        for name, saved in plain["others"].items():
            if name in self.others:
                self.others[name].load_state_dict(saved)
        if self._own() in plain:
            random_state.restore(plain[self._own()])

    def _unpacked(self, state: StateDict) -> StateDict:
        names = {"others", self._own()} & state.keys()
        return {name: self.packing.unpack(state[name]) for name in names}

    def _tensors(self) -> StateDict:
        model, optimizer = get_state_dict(self.model, self.optimizers, options=_BY_NAME)
        return {"model": model, "optimizer": optimizer}

    def _own(self) -> str:
        return f"process-{self.group.rank}"


def reason_of(error: CheckpointException) -> str:
    """What went wrong in the first of the processes in which something did."""
    cause = _cause_of(error)
    return str(cause).partition("\n")[0] or type(cause).__name__


def _cause_of(error: CheckpointException) -> BaseException:
    cause, _ = next(iter(error.failures.values()))
    return cause


def _values(tensors: StateDict) -> Iterator[Any]:
    return itertools.chain.from_iterable(part.values() for part in tensors.values())
