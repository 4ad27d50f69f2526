"""Makes the objects of a plan, or adopts what of them is there: the master first, as it owns the rest."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from job_tracker.backends.kubernetes.api_errors import AlreadyExists, ApiError, NotFound
from job_tracker.backends.kubernetes.client import KubernetesClient, Resource
from job_tracker.backends.kubernetes.labels import (
    Manifest,
    digest_of,
    group_of,
    is_kept,
    owned_by,
    restarts_of,
)
from job_tracker.backends.kubernetes.plan import KubernetesPlan
from job_tracker.backends.kubernetes.refusals import diagnose_refusal, name_taken
from job_tracker.errors import BackendUnavailable, LaunchFailed
from job_tracker.model import GroupRef

log = logging.getLogger(__name__)

_GOING_SECONDS = 90.0
_LOOK_SECONDS = 0.25


class Launcher:
    """Launches groups. `on_pod` is told of each pod as it was made, or found.

    `remove_lost` removes a pod that is to be started anew.
    """

    def __init__(
        self,
        client: KubernetesClient,
        on_pod: Callable[[Manifest], None],
        remove_lost: Callable[[GroupRef, Manifest], Awaitable[None]],
    ) -> None:
        self._client = client
        self._on_pod = on_pod
        self._remove_lost = remove_lost

    async def launch(self, plan: KubernetesPlan) -> None:
        """Have every object of the plan there. May be repeated after it was cut short anywhere.

        Raises LaunchFailed when the cluster refuses one of them, and BackendUnavailable when trying
        again may help; what was made until then is there in both cases.
        """
        master = await self._claim("pods", plan.pods[0], plan)
        owned: list[tuple[Resource, Manifest]] = [("pods", pod) for pod in plan.pods[1:]]
        if plan.service is not None:
            owned.append(("services", plan.service))
        claims = (self._claim(kind, owned_by(manifest, master), plan) for kind, manifest in owned)
        # All of them are waited for even if one fails, so that nothing is made after this has returned.
        results = await asyncio.gather(*claims, return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        # What is final counts more than what may get better.
        failures.sort(key=lambda failure: not isinstance(failure, LaunchFailed))
        if failures:
            raise failures[0]

    async def _claim(self, resource: Resource, manifest: Manifest, plan: KubernetesPlan) -> Manifest:
        """The object as it is once it is there, and ours."""
        deadline = time.monotonic() + _GOING_SECONDS
        while (made := await self._create_or_adopt(resource, manifest, plan)) is None:
            if time.monotonic() > deadline:
                name = manifest["metadata"]["name"]
                raise BackendUnavailable(f"an earlier {name} is still being deleted")
            await asyncio.sleep(_LOOK_SECONDS)
        if resource == "pods":
            self._on_pod(made)
        return made

    async def _create_or_adopt(
        self, resource: Resource, manifest: Manifest, plan: KubernetesPlan
    ) -> Manifest | None:
        """The object; None while an earlier one of ours with its name is on its way out."""
        name = manifest["metadata"]["name"]
        try:
            return await self._client.create(resource, manifest)
        except AlreadyExists:
            pass  # look at it
        except ApiError as error:
            diagnosis = diagnose_refusal(error, name, plan.namespace)
            if diagnosis is None:
                raise
            raise LaunchFailed(diagnosis) from error
        try:
            found = await self._client.read(resource, name)
        except NotFound:
            return None
        if group_of(found) != plan.group:
            raise LaunchFailed(name_taken(name, plan.namespace))
        if _is_going(found, manifest) and not is_kept(found):  # which has no master any more, and stays
            return None
        if digest_of(found) != plan.digest or is_kept(found):
            # Of a store that was lost, or of a configuration that was changed in mid-launch. It is ours
            # all the same, and a group that is half of one plan and half of another is no group.
            log.warning("removing %s, which is of another plan, or of a group that was stopped", name)
            await self._client.delete(resource, name, found["metadata"]["uid"])
            return None
        if restarts_of(found) < restarts_of(manifest):
            log.info("removing %s, which has failed and is started anew", name)
            await self._remove_lost(plan.group, found)
            return None
        return found


def _is_going(found: Manifest, wanted: Manifest) -> bool:
    """Whether the object is being deleted, or is about to be with a master that is no more."""
    told = found["metadata"]
    owners = [owner["uid"] for owner in wanted["metadata"].get("ownerReferences", [])]
    found_owners = [owner["uid"] for owner in told.get("ownerReferences") or []]
    return "deletionTimestamp" in told or found_owners != owners
