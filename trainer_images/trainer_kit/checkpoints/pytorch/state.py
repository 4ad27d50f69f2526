"""Gathers the state of a training run for a checkpoint, and restores it."""

import itertools
import logging
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
from trainer_kit.checkpoints.pytorch.exchange import GroupExchange
from trainer_kit.checkpoints.pytorch.packing import Packing
from trainer_kit.checkpoints.pytorch.parts import PartsReader, PlainPlanner
from trainer_kit.errors import TrainingError, UnfitError
from trainer_kit.gradient_hooks import low_rank_of
from trainer_kit.group import Group

# A group of one does not use torch.distributed, so this warning is expected.
warnings.filterwarnings("ignore", "torch.distributed is disabled, unavailable or uninitialized")

log = logging.getLogger(__name__)

StateDict = dict[str, Any]

# Values are stored by parameter name. So processes with different parts of the model (pipeline stages, shards
# of an optimizer) can read the values that processes with other parts have written.
_BY_NAME = StateDictOptions(flatten_optimizer_state_dict=True)


@dataclass(frozen=True)
class State:
    """The objects of a run that change during training."""

    group: Group
    model: nn.Module
    optimizers: Sequence[Optimizer]
    others: Mapping[str, Stateful]
    """Further objects with a state that is the same in all processes, such as a schedule."""
    packing: Packing

    def gather(self) -> StateDict:
        """Return the state for torch.distributed.checkpoint.

        Tensors of the model and the optimizers are those in use, not copies. Each process returns its shards
        of these tensors, its random state, and its state of PowerSGD if there is one. Rank 0 also returns the
        state of `others`.
        """
        tensors = self._tensors()
        # Refuse an object now if a later run could not load it.
        self.packing.pack([value for value in _values(tensors) if not isinstance(value, torch.Tensor)])
        others = self.packing.pack({name: other.state_dict() for name, other in self.others.items()})
        common = {"others": others} if self.group.is_master else {}
        if hook := low_rank_of(self.model):
            common[self._own_averaging()] = self.packing.pack(hook.state_dict())
        return {**tensors, **common, self._own(): self.packing.pack(random_state.current())}

    def restore(self, reader: PartsReader, world_size: int, exchange: GroupExchange) -> None:
        """Restore a state that `world_size` processes have saved.

        A rank that was not among them keeps its random state. Raises UnfitError if the model or an optimizer
        differs from the saved one. The values in the model and the optimizers are then undefined.
        """
        state = {**self._tensors(), "others": b""}
        if self.group.rank < world_size:
            state[self._own()] = b""
        hook = low_rank_of(self.model)
        # Either all processes that saved had a PowerSGD hook, or none had.
        if hook and self._own_averaging() in reader.read_metadata().state_dict_metadata:
            state[self._own_averaging()] = b""
        try:
            group = exchange.process_group
            planner = PlainPlanner(self.packing)
            load(state, storage_reader=reader, planner=planner, process_group=group, no_dist=group is None)
        except CheckpointException as error:
            if isinstance(cause := _cause_of(error), TrainingError):
                raise cause from error
            raise UnfitError(f"the checkpoint does not match this training: {reason_of(error)}") from error
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
        if hook and not hook.load_state_dict(plain.get(self._own_averaging(), {})) and self.group.is_master:
            log.warning(
                "the checkpoint has no state of PowerSGD for this number of processes, BUCKET_MB and "
                "POWERSGD_RANK: PowerSGD begins anew, and the errors of its last approximations are lost"
            )

    def _unpacked(self, state: StateDict) -> StateDict:
        names = {"others", self._own(), self._own_averaging()} & state.keys()
        return {name: self.packing.unpack(state[name]) for name in names}

    def _tensors(self) -> StateDict:
        model, optimizer = get_state_dict(self.model, self.optimizers, options=_BY_NAME)
        return {"model": model, "optimizer": optimizer}

    def _own(self) -> str:
        return f"process-{self.group.rank}"

    def _own_averaging(self) -> str:
        return f"averaging-{self.group.rank}"


def reason_of(error: CheckpointException) -> str:
    """Return the first line of the error in the failed process with the lowest rank."""
    cause = _cause_of(error)
    return str(cause).partition("\n")[0] or type(cause).__name__


def _cause_of(error: CheckpointException) -> BaseException:
    cause, _ = next(iter(error.failures.values()))
    return cause


def _values(tensors: StateDict) -> Iterator[Any]:
    return itertools.chain.from_iterable(part.values() for part in tensors.values())
