"""The weights of the server, and the rules by which gradients change them.

This module does not communicate.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hashed_questions.sparse_gradient import Rows


class Update(StrEnum):
    """The rule by which a gradient g changes the weights w.

    All rules end with the proximal step of L1: sign(w) max(0, |w| - LR L1).
    """

    PROXIMAL = "proximal"
    """w - LR g (delayed block proximal gradient: Li, Andersen, Smola and Yu, NIPS 2014)."""
    PROXIMAL_SVRG = "proximal_svrg"
    """Like proximal, but g is replaced by g(w) - g(v) + the mean gradient of all examples at v.

    v are the weights at the beginning of the epoch.

    Meng, Chen, Yu, Wang, Ma and Liu, "Asynchronous Stochastic Proximal Optimization Algorithms with Variance
    Reduction", AAAI 2017; Xiao and Zhang, SIAM Journal on Optimization, 2014.
    """
    DELAY_COMPENSATED = "delay_compensated"
    """Like proximal, but g is replaced by g + COMPENSATION g² (w - u), where u are the weights from which g
    was computed (DC-ASGD: Zheng et al., ICML 2017)."""


@dataclass(frozen=True)
class Push:
    """A worker's gradient of a sum of losses, with respect to the weights of some keys."""

    keys: NDArray[np.int64]
    rows: Rows
    loss: float
    read: Rows | None = None
    """The weights from which the gradient was computed; None if the update rule does not need them."""


class Weights:
    """The weights of all keys."""

    def __init__(
        self, keys: int, classes: int, update: Update, *, lr: float, l1: float, compensation: float
    ) -> None:
        self.values = np.zeros((keys, classes), np.float32)
        self._update = update
        self._lr, self._l1, self._compensation = lr, l1, compensation
        self._anchor = self.values.copy()
        """v: the weights at the beginning of the epoch."""
        self._whole = np.zeros_like(self.values)
        """The mean gradient of all examples at v."""

    @property
    def needs_read(self) -> bool:
        """Whether a push needs the weights from which it was computed."""
        return self._update is Update.DELAY_COMPENSATED

    @property
    def has_anchor(self) -> bool:
        """Whether workers need the weights at the beginning of the epoch, too."""
        return self._update is Update.PROXIMAL_SVRG

    def state_dict(self) -> dict[str, Any]:
        """Return the current weights, and the weights and mean gradient at the beginning of the epoch."""
        return {
            name: torch.from_numpy(array)
            for name, array in (("values", self.values), ("anchor", self._anchor), ("whole", self._whole))
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state from `state_dict`."""
        self.values, self._anchor, self._whole = (
            state[name].numpy() for name in ("values", "anchor", "whole")
        )

    def rows(self, keys: NDArray[np.int64], *, anchored: bool = False) -> Rows:
        """Return a copy of the weights of these keys.

        With `anchored`, these are the weights at the beginning of the epoch.
        """
        found: Rows = (self._anchor if anchored else self.values)[keys]
        return found

    def begin_epoch(self) -> None:
        """Keep the current weights as the weights at the beginning of an epoch."""
        self._anchor = self.values.copy()

    def set_whole(self, pushes: list[Push], examples: int) -> None:
        """Keep the mean gradient of all examples, computed with the weights at the beginning of the epoch."""
        self._whole = self._mean(pushes, examples)

    def apply(self, pushes: list[Push], examples: int) -> None:
        """Change the weights by the pushes of a step, whose gradients are sums over `examples` examples."""
        gradient = self._mean(pushes, examples) + self._whole
        moved = self.values - self._lr * gradient
        threshold = np.float32(self._lr * self._l1)
        self.values = np.sign(moved) * np.maximum(np.abs(moved) - threshold, 0)

    def _mean(self, pushes: list[Push], examples: int) -> Rows:
        # Because of rounding, a sum depends on the order of its terms. The pushes come in the order of the
        # workers, so that runs are reproducible.
        total = np.zeros_like(self.values)
        for push in pushes:
            total[push.keys] += push.rows
            if push.read is not None:
                drift = self.values[push.keys] - push.read
                total[push.keys] += np.float32(self._compensation / examples) * push.rows**2 * drift
        return total / np.float32(examples)
