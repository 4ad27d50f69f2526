"""Evictions: something other than this service stops an attempt, whose processes get time to save."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class EvictionReason(StrEnum):
    """The reason why the engine ends a rank. The values are stable."""

    DRAINED = "drained"
    """Evicted through the cluster's API, for example by a drain, or before a spot machine is taken away."""
    DELETED = "deleted"
    """Deleted, with a grace period, by a person or a program; before Kubernetes 1.26, perhaps by a drain."""
    OUTRANKED = "outranked"
    """The engine makes room for a pod of a higher priority."""
    TAINTED = "tainted"
    """The rank's node has a new taint, which the rank does not tolerate."""
    CLUSTER_QUEUE = "cluster_queue"
    """The cluster's own queue had let the attempt start, and has withdrawn this permission."""
    SHUT_DOWN = "shut_down"
    """The rank's node is shut down in an orderly way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """The notice that a rank got from the engine.

    The other ranks of the group are then stopped with a grace period, too.

    The job is queued again at its old position, and the attempt does not count towards `max_attempts`.
    """

    why: EvictionReason
    at: datetime
    """The time when the rank got the notice, by the engine's clock."""
    rank: int = 0
    machine: str = ""
    """Empty: unknown."""
    detail: str = ""
    """The engine's own words."""

    def sentence(self) -> str:
        """Return a sentence for the job's caller that says what stopped the attempt."""
        rank, machine = self.rank, self.machine or "its node"
        what = {
            EvictionReason.DRAINED: f"rank {rank} was evicted from {machine} through the API of the cluster",
            EvictionReason.DELETED: f"the pod of rank {rank} on {machine} was deleted or evicted, but not by "
            "this service",
            EvictionReason.OUTRANKED: f"rank {rank} made room on {machine} for a pod of a higher priority",
            EvictionReason.TAINTED: f"rank {rank} does not tolerate a new taint of {machine}",
            EvictionReason.CLUSTER_QUEUE: f"the queue of the cluster stopped rank {rank} on {machine}",
            EvictionReason.SHUT_DOWN: f"{machine}, with rank {rank}, is being shut down",
        }[self.why]
        return f"Evicted: {what}{f' ({self.detail})' if self.detail else ''}."
