"""Advice for a running job, from what its ranks report about their steps."""

from collections.abc import Sequence

from training_service._generated.training_service_pb2 import RankPace, RankStatus

MOST_WAITING = 0.5
"""There is advice only if each rank waits for others for more than this share of a step."""


def waiting(ranks: Sequence[RankStatus]) -> str:
    """Return advice if all ranks of a job wait for others for a long time; "" if there is none to give.

    If even the rank that waits the least waits for more than MOST_WAITING of a step, the exchange of data
    takes this time, and the advice says how to reduce it. If one rank waits less, there is no advice: the
    others may wait for this rank, and the status names slow ranks. There is no advice, either, if the job has
    only one rank, if a rank does not train, or if the time of a rank's steps is unknown.
    """
    paces = [rank.pace for rank in ranks]
    if len(paces) < 2 or not all(pace.step_seconds > 0 and pace.phase == "training" for pace in paces):
        return ""
    least = min(paces, key=_share)
    if _share(least) <= MOST_WAITING:
        return ""
    return (
        f"each of the {len(paces)} ranks waits for others for {_share(least):.0%} of a step or more "
        f"({least.waiting_seconds:.2g} of {least.step_seconds:.2g} s): try a larger batch, larger buckets "
        "(BUCKET_MB), GRADIENT_COMPRESSION, or fewer instances; `trainctl scale` measures which helps"
    )


def _share(pace: RankPace) -> float:
    return pace.waiting_seconds / pace.step_seconds
