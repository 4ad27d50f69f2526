"""Creates or adopts the objects of a plan: the master first, since it owns the others.

No object of an attempt is created twice, since the first may have run. If any pod of the attempt is known
and the master is missing, the attempt has failed. A worker is not created again if it was ever seen or if
the group was complete once. The exception is a restart of its rank.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from job_tracker.backends.kubernetes import diagnosis
from job_tracker.backends.kubernetes.api_errors import AlreadyExists, ApiError, NotFound
from job_tracker.backends.kubernetes.client import KubernetesClient, Resource
from job_tracker.backends.kubernetes.labels import (
    Manifest,
    digest_of,
    group_of,
    is_kept,
    owned_by,
    rank_of,
    restarts_of,
    submission_of,
)
from job_tracker.backends.kubernetes.plan import KubernetesPlan
from job_tracker.backends.kubernetes.refusals import diagnose_refusal, name_taken
from job_tracker.backends.kubernetes.status import observe_rank
from job_tracker.backends.shared.instances import planned_otherwise
from job_tracker.backends.shared.shared_work import gathered
from job_tracker.domain.errors import BackendUnavailable, LaunchFailed
from job_tracker.domain.group import MASTER_RANK, GroupRef

log = logging.getLogger(__name__)

_GOING_SECONDS = 90.0
_LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The attempt to launch: its plan, and all pods that were ever seen, by rank.

    `digest` is that of the master's plan: the current plan, or one of an earlier configuration.
    """

    plan: KubernetesPlan
    known: Mapping[int, Manifest]
    digest: str

    @property
    def is_planned_otherwise(self) -> bool:
        """Whether the attempt was begun with another configuration."""
        return self.digest != self.plan.digest

    def may_make(self, wanted: Manifest) -> bool:
        """Return whether it is certain that the object never existed, in this start of its rank."""
        rank = rank_of(wanted)
        if self.is_planned_otherwise:
            return False
        if rank is None:
            return True  # the Service, which runs no process
        ours = {of: pod for of, pod in self.known.items() if submission_of(pod) == submission_of(wanted)}
        if rank in ours:
            return restarts_of(ours[rank]) < restarts_of(wanted)
        if rank == MASTER_RANK and ours:
            return False  # the other pods were created after the master
        return restarts_of(wanted) > 0 or not self.plan.was_launched


class Launcher:
    """Launches groups. `on_pod` and `on_service` receive each object that was created or found.

    `remove_lost` removes a pod whose rank is to be restarted.
    """

    def __init__(
        self,
        client: KubernetesClient,
        on_pod: Callable[[Manifest], None],
        on_service: Callable[[Manifest], None],
        remove_lost: Callable[[GroupRef, Manifest], Awaitable[None]],
    ) -> None:
        self._client = client
        self._on_pod = on_pod
        self._on_service = on_service
        self._remove_lost = remove_lost

    async def launch(self, plan: KubernetesPlan, known: Mapping[int, Manifest]) -> None:
        """Ensure that every object of the plan exists. Safe to repeat after an interruption.

        `known` has all pods of the group that were ever seen, by rank, even those that are gone. Raises
        LaunchFailed if the cluster refuses an object or the attempt has lost its master, and
        BackendUnavailable if a retry may help. The objects created by then remain in both cases.
        """
        master = await self._claim("pods", plan.pods[0], _Attempt(plan, known, plan.digest))
        if master is None:
            raise LaunchFailed(diagnosis.DELETED.about(MASTER_RANK))
        attempt = _Attempt(plan, known, digest_of(master) or "")
        owned: list[tuple[Resource, Manifest]] = [("pods", pod) for pod in plan.pods[1:]]
        if plan.service is not None:
            owned.append(("services", plan.service))
        claims: list[Awaitable[object]] = [
            self._claim(kind, owned_by(manifest, master), attempt) for kind, manifest in owned
        ]
        if plan.secret is not None and not attempt.is_planned_otherwise:
            # The master owns the Secret, and its node waits for it. A Secret with this name has the same
            # content, left by an earlier try. Reading it would need a right that the service lacks.
            claims.append(self._create("secrets", owned_by(plan.secret, master), plan))
        # Wait for all of them even if one fails, so that nothing is created after this returns.
        await gathered(claims)

    async def _claim(self, resource: Resource, wanted: Manifest, attempt: _Attempt) -> Manifest | None:
        """The object as it is once it is there, and ours; None if it is gone, and is not made again."""
        name = wanted["metadata"]["name"]
        deadline = time.monotonic() + _GOING_SECONDS
        while True:
            may_make = attempt.may_make(wanted)
            claimed = await self._create(resource, wanted, attempt.plan) if may_make else None
            if claimed is None and (found := await self._read(resource, name)) is not None:
                claimed = await self._adopt(resource, found, wanted, attempt)
            elif claimed is None and not may_make:
                if attempt.is_planned_otherwise and not _was_there(wanted, attempt.plan):
                    raise LaunchFailed(planned_otherwise())
                return None
            if claimed is not None:
                (self._on_pod if resource == "pods" else self._on_service)(claimed)
                return claimed
            if time.monotonic() > deadline:
                raise BackendUnavailable(f"an earlier {name} is still being deleted")
            await asyncio.sleep(_LOOK_SECONDS)

    async def _create(self, resource: Resource, wanted: Manifest, plan: KubernetesPlan) -> Manifest | None:
        """Create and return the object; None if the name is taken."""
        try:
            return await self._client.create(resource, wanted)
        except AlreadyExists:
            return None
        except ApiError as error:
            refusal = diagnose_refusal(error, wanted["metadata"]["name"], plan.namespace)
            if refusal is None:
                raise
            raise LaunchFailed(refusal) from error

    async def _read(self, resource: Resource, name: str) -> Manifest | None:
        try:
            return await self._client.read(resource, name)
        except NotFound:
            return None

    async def _adopt(
        self, resource: Resource, found: Manifest, wanted: Manifest, attempt: _Attempt
    ) -> Manifest | None:
        """What has the name, if it is of this attempt; None if it is in the way, and about to be gone."""
        name, rank, plan = wanted["metadata"]["name"], rank_of(wanted), attempt.plan
        is_going = "deletionTimestamp" in found["metadata"]
        if group_of(found) != plan.group:
            raise LaunchFailed(name_taken(name, plan.namespace))
        if submission_of(found) != submission_of(wanted):
            if not is_going:
                log.warning("removing %s, which is of a job with this id in another store", name)
                await self._client.delete(resource, name, found["metadata"]["uid"])
            return None
        if is_kept(found):  # its attempt has ended, and this store has lost the end
            raise LaunchFailed(diagnosis.DELETED.about(MASTER_RANK if rank is None else rank))
        if _owners(found) != _owners(wanted):
            raise LaunchFailed(diagnosis.DELETED.about(MASTER_RANK))
        if is_going and rank == MASTER_RANK:
            seen = observe_rank(rank, found, datetime.now(UTC))
            raise LaunchFailed(seen.diagnosis or diagnosis.DELETED.about(rank))
        is_lost = restarts_of(found) < restarts_of(wanted)
        if rank != MASTER_RANK and (
            digest_of(found) != attempt.digest or (is_lost and attempt.is_planned_otherwise)
        ):
            raise LaunchFailed(planned_otherwise())
        if is_lost and not is_going:
            log.info("removing %s, which has failed and is started anew", name)
            await self._remove_lost(plan.group, found)
        # What is being deleted by somebody is ours all the same, and fails as that is seen.
        return None if is_lost or (is_going and rank is None) else found


def _was_there(wanted: Manifest, plan: KubernetesPlan) -> bool:
    return plan.was_launched and not restarts_of(wanted)


def _owners(manifest: Manifest) -> list[str]:
    return [owner["uid"] for owner in manifest["metadata"].get("ownerReferences") or []]
