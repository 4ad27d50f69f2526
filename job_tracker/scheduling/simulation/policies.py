"""The policies of simulations, and their knowledge of run times, by name."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import Final

from job_tracker.scheduling.planner import plan
from job_tracker.scheduling.simulation.cluster import Cluster
from job_tracker.scheduling.simulation.durations import (
    Durations,
    ExactDurations,
    SaidDurations,
    UnknownDurations,
)
from job_tracker.scheduling.simulation.learning import LearnedDurations
from job_tracker.scheduling.simulation.peers import conservative, easy, fifo, newest
from job_tracker.scheduling.simulation.replay import Policy


class PolicyName(StrEnum):
    """The name of a policy."""

    PLANNER = "planner"
    NEWEST = "newest"
    FIFO = "fifo"
    EASY = "easy"
    CONSERVATIVE = "conservative"


class Knowledge(StrEnum):
    """The knowledge that a policy has of run times."""

    EXACT = "exact"
    LEARNED = "learned"
    SAID = "said"
    UNKNOWN = "unknown"


POLICIES: Final[Mapping[PolicyName, Policy]] = {
    PolicyName.PLANNER: plan,
    PolicyName.NEWEST: newest,
    PolicyName.FIFO: fifo,
    PolicyName.EASY: easy,
    PolicyName.CONSERVATIVE: conservative,
}


def policy_of(name: PolicyName, cluster: Cluster) -> Policy:
    """Return the policy for a cluster.

    Raises ValueError if the policy cannot count the cluster's resources.
    """
    if name is PolicyName.PLANNER:
        return partial(plan, options=cluster.options)
    if name is PolicyName.NEWEST:
        return partial(newest, options=cluster.options)
    if not cluster.counts_instances_only:
        raise ValueError(
            f"policy {name.value} counts instances only, and this cluster has more to count; use "
            f"{PolicyName.PLANNER.value}"
        )
    return POLICIES[name]


DURATIONS: Final[Mapping[Knowledge, Callable[[], Durations]]] = {
    Knowledge.EXACT: ExactDurations,
    Knowledge.LEARNED: LearnedDurations,
    Knowledge.SAID: SaidDurations,
    Knowledge.UNKNOWN: UnknownDurations,
}
