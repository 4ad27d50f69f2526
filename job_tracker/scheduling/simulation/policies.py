"""The policies of simulations, and what they know of run times, by name."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

from job_tracker.scheduling.planner import plan
from job_tracker.scheduling.simulation.learning import LearnedDurations
from job_tracker.scheduling.simulation.peers import conservative, easy, fifo
from job_tracker.scheduling.simulation.replay import Durations, ExactDurations, Policy, UnknownDurations


class PolicyName(StrEnum):
    """A policy."""

    PLANNER = "planner"
    FIFO = "fifo"
    EASY = "easy"
    CONSERVATIVE = "conservative"


class Knowledge(StrEnum):
    """What a policy knows of run times."""

    EXACT = "exact"
    LEARNED = "learned"
    UNKNOWN = "unknown"


POLICIES: Final[Mapping[PolicyName, Policy]] = {
    PolicyName.PLANNER: plan,
    PolicyName.FIFO: fifo,
    PolicyName.EASY: easy,
    PolicyName.CONSERVATIVE: conservative,
}
DURATIONS: Final[Mapping[Knowledge, Callable[[], Durations]]] = {
    Knowledge.EXACT: ExactDurations,
    Knowledge.LEARNED: LearnedDurations,
    Knowledge.UNKNOWN: UnknownDurations,
}
