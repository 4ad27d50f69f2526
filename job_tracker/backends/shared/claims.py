"""Claims: the decisions of a launch about existing pods or containers that have a wanted name."""

from enum import Enum, auto


class Claim(Enum):
    """The launch's decision about an existing object that has the wanted name."""

    TAKEN = auto()
    """The object does not belong to this service. Leave it, and fail the launch."""
    REPLACE = auto()
    """No program of this job has run in the object. Remove it, and create the wanted one."""
    OTHER_PLAN = auto()
    """The object may have run with another configuration. Fail the launch."""
    RESTART = auto()
    """The object's rank must be restarted. Remove the object, and create the wanted one."""
    ADOPT = auto()
    """The object is the wanted one. Use it."""


def claim_of(
    *, is_of_group: bool, is_of_job: bool, is_of_plan: bool, may_have_run: bool, is_lost: bool
) -> Claim:
    """Return the decision about the object, given these facts.

    An object of the group, but not of the job, belongs to a job with the same id in another store.
    `is_lost` says that the object belongs to an earlier start of its rank.
    """
    if not is_of_group:
        return Claim.TAKEN
    if not is_of_job:
        return Claim.REPLACE
    if not is_of_plan:
        return Claim.OTHER_PLAN if may_have_run else Claim.REPLACE
    return Claim.RESTART if is_lost else Claim.ADOPT
