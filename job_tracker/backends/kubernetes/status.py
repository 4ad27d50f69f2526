"""From what the cluster says of a pod to what that means, and what to do about it. Pure."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from job_tracker.backends.base import Observation, RankObservation
from job_tracker.backends.kubernetes.labels import Manifest

START_GRACE = timedelta(seconds=60)


def observe_group(
    instances: int,
    pods: Mapping[int, Manifest],
    now: datetime,
    *,
    launching: bool = False,
    stopping: bool = False,
    start_grace: timedelta = START_GRACE,
) -> Observation:
    """What the group is doing; `pods` by rank, as the API has them. See observe_rank."""
    return Observation(
        tuple(
            observe_rank(
                rank,
                pods.get(rank),
                now,
                launching=launching,
                stopping=stopping,
                start_grace=start_grace,
            )
            for rank in range(instances)
        )
    )


def observe_rank(
    rank: int,
    pod: Manifest | None,
    now: datetime,
    *,
    launching: bool = False,
    stopping: bool = False,
    start_grace: timedelta = START_GRACE,
) -> RankObservation:
    """What one rank is doing, and why it failed if it did.

    A pod that is not there was deleted by somebody, unless we are still `launching` the group, or
    `stopping` it. `start_grace` is how long an image that cannot be pulled, or a container that cannot
    be made, may take to mend itself.
    """
    raise NotImplementedError


def pending_reason(pod: Manifest) -> str | None:
    """Why the pod's training has not started, in the cluster's words; None if nothing is in its way."""
    raise NotImplementedError
