"""What a parameter server waits for before it changes the weights. Needs no PyTorch.

The staleness of a gradient is the number of updates between the weights that it was computed from and those
that it is applied to.
"""

from dataclasses import dataclass
from enum import StrEnum

from trainer_kit.errors import ParameterError

COMPENSATION = 0.04
"""λ of delay compensation, where none is named: the constant that Zheng et al. 2017 used."""


class Synchrony(StrEnum):
    """How far workers may run ahead of each other."""

    SYNCHRONOUS = "synchronous"
    """An update takes one gradient of each worker, and all wait for it."""
    BACKUP_WORKERS = "backup_workers"
    """An update takes the first N of N + b, and drops the late ones (Chen et al., arXiv:1604.00981, 2016)."""
    SOFTSYNC = "softsync"
    """n-softsync: an update takes any N / n, each weakened by its staleness; no worker waits (Zhang et al.,
    IJCAI 2016)."""
    ASYNCHRONOUS = "asynchronous"
    """An update takes one gradient, whatever became of the weights meanwhile (Downpour SGD: Dean et al.,
    NIPS 2012)."""
    DELAY_COMPENSATED = "delay_compensated"
    """The same, corrected to first order for what the weights became (DC-ASGD: Zheng et al., ICML 2017)."""


@dataclass(frozen=True)
class Rule:
    """When a server changes the weights, and what it makes of a gradient first."""

    gradients: int
    """Whose mean an update takes."""
    in_step: bool = False
    """Whether workers wait for the update. A gradient that is stale is dropped then."""
    weakens_stale: bool = False
    """Whether a gradient is divided by its staleness, where that is above 1."""
    compensation: float = 0.0
    """λ: a gradient g of weights v is applied to weights w as g + λ g² (w - v), all element by element."""


def rule_of(
    synchrony: Synchrony,
    workers: int,
    *,
    backup_workers: int = 0,
    softsync: int = 1,
    compensation: float = COMPENSATION,
) -> Rule:
    """The rule for so many workers, backup workers included; ParameterError for numbers that cannot be."""
    if workers < 1:
        raise ParameterError(
            "WORLD_SIZE 1 leaves a parameter server no worker: rank 0 is the server and computes no gradients"
        )
    if backup_workers and synchrony is not Synchrony.BACKUP_WORKERS:
        raise ParameterError(f"BACKUP_WORKERS is {backup_workers}, but SYNCHRONY is {synchrony}")
    if not 0 <= backup_workers < workers:
        raise ParameterError(
            f"BACKUP_WORKERS {backup_workers} of {workers} workers leave none whose gradients count"
        )
    if not 1 <= softsync <= workers:
        raise ParameterError(f"SOFTSYNC must be from 1 to the {workers} workers, but is {softsync}")
    rules = {
        Synchrony.SYNCHRONOUS: Rule(workers, in_step=True),
        Synchrony.BACKUP_WORKERS: Rule(workers - backup_workers, in_step=True),
        Synchrony.SOFTSYNC: Rule(workers // softsync, weakens_stale=True),
        Synchrony.ASYNCHRONOUS: Rule(1),
        Synchrony.DELAY_COMPENSATED: Rule(1, compensation=compensation),
    }
    return rules[synchrony]
