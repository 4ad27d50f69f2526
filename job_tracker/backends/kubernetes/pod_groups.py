"""The objects that describe groups to the cluster's own gang scheduler (gangs.py).

A PodGroup exists before its pods, because Volcano refuses pods whose PodGroup is missing. Once the master pod
is created, it becomes the owner of the PodGroup, so that the cluster removes both together.
"""

import logging
from functools import partial

from job_tracker.backends.kubernetes.api_errors import AlreadyExists, ApiError, NotFound
from job_tracker.backends.kubernetes.client import KubernetesClient
from job_tracker.backends.kubernetes.gangs import PodGroupResource
from job_tracker.backends.kubernetes.labels import Manifest, group_of, owned_by, submission_of
from job_tracker.backends.kubernetes.plan import KubernetesPlan
from job_tracker.backends.kubernetes.refusals import diagnose_refusal, name_taken
from job_tracker.backends.shared.retries import NotYet, repeated
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.errors import LaunchFailed
from job_tracker.domain.group import GroupRef

log = logging.getLogger(__name__)

_DELETION_SECONDS = 30.0
_POLL_SECONDS = 0.25
_UNKNOWN_RESOURCE = "could not find the requested resource"


class PodGroups:
    """Creates and removes PodGroups. Without a `resource`, the methods do nothing."""

    def __init__(self, client: KubernetesClient, resource: PodGroupResource | None) -> None:
        self._client = client
        self._resource: PodGroupResource | None = resource

    async def claim(self, plan: KubernetesPlan) -> Manifest | None:
        """Create or adopt the plan's PodGroup, and return it; None if the plan has none.

        Raises LaunchFailed if the cluster refuses it, or if a foreign PodGroup has its name.
        """
        if plan.pod_group is None or self._resource is None:
            return None
        claim = partial(self._create_or_adopt, self._resource, plan.pod_group, plan)
        return await repeated(claim, _DELETION_SECONDS, _POLL_SECONDS)

    async def give(self, pod_group: Manifest, master: Manifest) -> None:
        """Make the master the owner of the PodGroup, unless the PodGroup has an owner already."""
        metadata = pod_group["metadata"]
        if self._resource is None or metadata.get("ownerReferences"):
            return
        owners = owned_by(pod_group, master)["metadata"]["ownerReferences"]
        await self._client.change(
            self._resource, metadata["name"], metadata["uid"], {"ownerReferences": owners}
        )

    async def remove(self, ref: GroupRef) -> None:
        """Remove the group's PodGroup, if it exists."""
        if self._resource is None:
            return
        try:
            found = await self._client.read(self._resource, ref.name)
        except NotFound:
            return
        if group_of(found) == ref:
            await self._client.delete(self._resource, ref.name, found["metadata"]["uid"])

    async def _create_or_adopt(
        self, resource: PodGroupResource, wanted: Manifest, plan: KubernetesPlan
    ) -> Manifest:
        name = wanted["metadata"]["name"]
        try:
            return await self._client.create(resource, wanted)
        except AlreadyExists:
            pass
        except ApiError as error:
            raise _refused(error, resource, name, plan.namespace) from error
        try:
            found = await self._client.read(resource, name)
        except NotFound:
            raise NotYet(f"PodGroup {name} has just been deleted") from None
        if group_of(found) != plan.group:
            raise LaunchFailed(name_taken(name, plan.namespace))
        if submission_of(found) != submission_of(wanted):
            log.warning("removing PodGroup %s: it belongs to a job with the same id in another store", name)
            await self._client.delete(resource, name, found["metadata"]["uid"])
            raise NotYet(f"an earlier PodGroup {name} is still being deleted")
        if "deletionTimestamp" in found["metadata"]:
            raise NotYet(f"an earlier PodGroup {name} is still being deleted")
        return found


def _refused(error: ApiError, resource: str, name: str, namespace: str) -> Exception:
    if isinstance(error, NotFound) and _UNKNOWN_RESOURCE in error.message:
        return LaunchFailed(
            Diagnosis(
                category=Category.LAUNCH_FAILED,
                summary=f"The cluster does not know {resource}, which kubernetes.gang needs.",
                resolution="Install the gang scheduler with its resources, or correct "
                "kubernetes.gang.scheduler. Then submit the job again.",
                detail=error.message,
            )
        )
    refusal = diagnose_refusal(error, name, namespace)
    return LaunchFailed(refusal) if refusal is not None else error
