"""Rules for the gradients that a parameter server waits for before an update.

This module does not need PyTorch. The staleness of a gradient is the number of updates between the weights
from which it was computed and the weights to which it is applied.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from trainer_kit.errors import ParameterError

SPECULATE_AFTER = 50
"""The default percentage of shares that must have a gradient before the other shares are started again."""
COMPENSATION = 0.04
"""The default λ of delay compensation, which Zheng et al. 2017 used."""


class Synchrony(StrEnum):
    """The way in which a parameter server waits for its workers."""

    SYNCHRONOUS = "synchronous"
    """An update takes one gradient from each worker, and all workers wait for it."""
    BACKUP_WORKERS = "backup_workers"
    """With N + b workers, an update takes the first N gradients, and drops the others (Chen et al.,
    arXiv:1604.00981)."""
    SPECULATIVE = "speculative"
    """Like synchronous, but once some shares of the batch have a gradient, idle workers start the other
    shares again. The first gradient of a share counts (backup tasks: Dean and Ghemawat, MapReduce, OSDI
    2004).
    """
    SOFTSYNC = "softsync"
    """n-softsync (Zhang et al., IJCAI 2016): with N workers, an update takes any N / n gradients, each
    divided by its staleness if that is above 1.

    No worker waits.
    """
    ASYNCHRONOUS = "asynchronous"
    """An update takes one gradient of any staleness (Downpour SGD: Dean et al., NIPS 2012)."""
    DELAY_COMPENSATED = "delay_compensated"
    """Like asynchronous, with a first-order correction of staleness (DC-ASGD: Zheng et al., ICML 2017)."""


@dataclass(frozen=True)
class Rule:
    """The rule by which a server updates the weights and corrects gradients."""

    gradients: int
    """The number of gradients of an update, which takes their mean."""
    in_step: bool = False
    """Whether workers wait for the update. If so, stale gradients are dropped."""
    speculates_after: int = 0
    """The number of shares that must have a gradient before idle workers start the other shares again.

    0: the rule does not speculate, and each worker computes gradients of its own shares of the batches.
    """
    weakens_stale: bool = False
    """Whether a gradient is divided by its staleness, if that is above 1."""
    compensation: float = 0.0
    """λ: a gradient g of weights v is applied to weights w as g + λ g² (w - v), elementwise."""


def rule_of(
    synchrony: Synchrony,
    workers: int,
    *,
    backup_workers: int = 0,
    softsync: int = 1,
    compensation: float = COMPENSATION,
    speculate_after: int = SPECULATE_AFTER,
) -> Rule:
    """Return the rule for `workers` workers, including backup workers.

    Raises ParameterError if there are too few workers for it.
    """
    if workers < 1:
        raise ParameterError(
            "WORLD_SIZE 1 leaves a parameter server no worker: rank 0 is the server and computes no gradients"
        )
    if not 0 <= backup_workers < workers:
        raise ParameterError(
            f"BACKUP_WORKERS {backup_workers} of {workers} workers leave none whose gradients count"
        )
    if not 1 <= softsync <= workers:
        raise ParameterError(f"SOFTSYNC must be from 1 to the {workers} workers, but is {softsync}")
    rules = {
        Synchrony.SYNCHRONOUS: Rule(workers, in_step=True),
        Synchrony.BACKUP_WORKERS: Rule(workers - backup_workers, in_step=True),
        Synchrony.SPECULATIVE: Rule(
            workers,
            in_step=True,
            speculates_after=max(1, min(workers - 1, math.ceil(workers * speculate_after / 100))),
        ),
        Synchrony.SOFTSYNC: Rule(workers // softsync, weakens_stale=True),
        Synchrony.ASYNCHRONOUS: Rule(1),
        Synchrony.DELAY_COMPENSATED: Rule(1, compensation=compensation),
    }
    return rules[synchrony]
