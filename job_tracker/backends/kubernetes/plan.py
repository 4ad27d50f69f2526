"""What a job becomes on a cluster: pure, so that tests compare it whole."""

from dataclasses import dataclass

from job_tracker.backends.kubernetes.labels import Manifest
from job_tracker.model import GroupRef


@dataclass(frozen=True, slots=True)
class KubernetesPlan:
    """A group of pods as it will be sent, but for the owner, whom only the API server can name.

    `pods` are by rank, the master first. `service` is there when there are several instances.
    `digest` stands for all of it, and is on each object: one with our name and another digest is not
    of this plan.
    """

    group: GroupRef
    instances: int
    namespace: str
    service: Manifest | None
    pods: tuple[Manifest, ...]
    digest: str
