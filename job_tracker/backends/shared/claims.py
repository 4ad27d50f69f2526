"""Claims: what a launch does with a pod or container that has a name which it wants."""

from enum import Enum, auto


class Claim(Enum):
    """The action of a launch for the object that has the wanted name."""

    TAKEN = auto()
    """It is not ours. Leave it, and fail the launch."""
    REPLACE = auto()
    """No program of this job has run in it. Remove it, and create the wanted one."""
    OTHER_PLAN = auto()
    """It may have run with another configuration. Fail the launch."""
    RESTART = auto()
    """Its rank is to be restarted. Remove it, and create the wanted one."""
    ADOPT = auto()
    """Use it: it is the wanted one."""


def claim_of(
    *, is_of_group: bool, is_of_job: bool, is_of_plan: bool, may_have_run: bool, is_lost: bool
) -> Claim:
    """Decide by the labels of the object.

    An object of the group, but not of the job, belongs to a job with the same id in another store. `is_lost`:
    the job wants more restarts of its rank than it has.
    """
    if not is_of_group:
        return Claim.TAKEN
    if not is_of_job:
        return Claim.REPLACE
    if not is_of_plan:
        return Claim.OTHER_PLAN if may_have_run else Claim.REPLACE
    return Claim.RESTART if is_lost else Claim.ADOPT
