"""Claims of names: how a launch treats the pod or container that has the name of one that it wants."""

from enum import Enum, auto


class Claim(Enum):
    """The treatment of an object that has the name which a launch wants."""

    TAKEN = auto()
    """It is not ours, and stays: the launch fails."""
    REPLACE = auto()
    """Remove it, and create the wanted one: no program of this job has run in it."""
    PLANNED_OTHERWISE = auto()
    """It was made with another configuration, and may have run: the launch fails."""
    RESTART = auto()
    """Its rank is to be started again: remove it, and create the wanted one."""
    ADOPT = auto()
    """It is the wanted one."""


def claim_of(
    *, is_of_group: bool, is_of_job: bool, is_of_plan: bool, may_have_run: bool, is_lost: bool
) -> Claim:
    """Decide from what the labels of the object say.

    An object of the group but not of the job is of another store, which counts its jobs from 1, too.
    `is_lost`: the job wants its rank started more often than it was.
    """
    if not is_of_group:
        return Claim.TAKEN
    if not is_of_job:
        return Claim.REPLACE
    if not is_of_plan:
        return Claim.PLANNED_OTHERWISE if may_have_run else Claim.REPLACE
    return Claim.RESTART if is_lost else Claim.ADOPT
