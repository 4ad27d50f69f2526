"""Makes the objects of a plan, or adopts what of them is there: the master first, as it owns the rest.

Nothing of an attempt is made twice, since it may have run. Of an attempt whose pods are known, the master
is there, or the attempt has failed; and a worker that was seen, or belongs to a group that was complete
once, is not made again. Only what is to be started anew is.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

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
from job_tracker.backends.shared.claims import Claim, claim_of
from job_tracker.backends.shared.gathering import gathered
from job_tracker.backends.shared.instances import planned_otherwise
from job_tracker.backends.shared.retries import NotYet, repeated
from job_tracker.domain.errors import LaunchFailed
from job_tracker.domain.group import MASTER_RANK, GroupRef

log = logging.getLogger(__name__)

_GOING_SECONDS = 90.0
_LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The attempt that is launched: its plan, and its pods that were ever seen, by rank.

    `digest` is that of the plan which its master was made from: ours, or one of an earlier configuration.
    """

    plan: KubernetesPlan
    known: Mapping[int, Manifest]
    digest: str

    @property
    def is_planned_otherwise(self) -> bool:
        """Whether it was begun with another configuration."""
        return self.digest != self.plan.digest

    def may_make(self, wanted: Manifest) -> bool:
        """Whether the object has certainly not been there before, in this start of its rank."""
        rank = rank_of(wanted)
        if self.is_planned_otherwise:
            return False
        if rank is None:
            return True  # the Service, in which nothing runs
        ours = {of: pod for of, pod in self.known.items() if submission_of(pod) == submission_of(wanted)}
        if rank in ours:
            return restarts_of(ours[rank]) < restarts_of(wanted)
        if rank == MASTER_RANK and ours:
            return False  # they were made after it
        return restarts_of(wanted) > 0 or not self.plan.was_launched


class Launcher:
    """Launches groups. `on_pod` is told of each pod as it was made, or found, `on_service` of the Service.

    `remove_lost` removes a pod that is to be started anew.
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
        """Have every object of the plan there. May be repeated after it was cut short anywhere.

        `known` are the pods of the group that were ever seen, by rank, also those that are gone.
        Raises LaunchFailed when the cluster refuses one of them, or the attempt has lost its master, and
        BackendUnavailable when trying again may help; what was made until then is there in both cases.
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
            # Owned by the master, whose node waits for it should it be first. One of this name has the same
            # content, and is of an earlier try: it need not be read, which takes a right that we lack.
            claims.append(self._create("secrets", owned_by(plan.secret, master), plan))
        # All of them are waited for even if one fails, so that nothing is made after this has returned.
        await gathered(claims)

    async def _claim(self, resource: Resource, wanted: Manifest, attempt: _Attempt) -> Manifest | None:
        """Create or adopt the object, and return it; None if it is gone, and must not be created again."""
        claim = partial(self._create_or_adopt, resource, wanted, attempt)
        return await repeated(claim, _GOING_SECONDS, _LOOK_SECONDS)

    async def _create_or_adopt(
        self, resource: Resource, wanted: Manifest, attempt: _Attempt
    ) -> Manifest | None:
        may_make = attempt.may_make(wanted)
        claimed = await self._create(resource, wanted, attempt.plan) if may_make else None
        if claimed is None:
            found = await self._read(resource, wanted["metadata"]["name"])
            if found is not None:
                claimed = await self._adopt(resource, found, wanted, attempt)
            elif may_make:
                raise _not_yet(wanted)  # it was there a moment ago
            elif attempt.is_planned_otherwise and not _was_there(wanted, attempt.plan):
                raise LaunchFailed(planned_otherwise())
            else:
                return None
        (self._on_pod if resource == "pods" else self._on_service)(claimed)
        return claimed

    async def _create(self, resource: Resource, wanted: Manifest, plan: KubernetesPlan) -> Manifest | None:
        """The object, made; None if the name is taken."""
        try:
            return await self._client.create(resource, wanted)
        except AlreadyExists:
            return None
        except ApiError as error:
            why = diagnose_refusal(error, wanted["metadata"]["name"], plan.namespace)
            if why is None:
                raise
            raise LaunchFailed(why) from error

    async def _read(self, resource: Resource, name: str) -> Manifest | None:
        try:
            return await self._client.read(resource, name)
        except NotFound:
            return None

    async def _adopt(
        self, resource: Resource, found: Manifest, wanted: Manifest, attempt: _Attempt
    ) -> Manifest:
        """Return the object that has the name, if it is the wanted one; NotYet while it is deleted."""
        name, rank, plan = wanted["metadata"]["name"], rank_of(wanted), attempt.plan
        is_going = "deletionTimestamp" in found["metadata"]
        is_lost = restarts_of(found) < restarts_of(wanted)
        is_of_plan = digest_of(found) == attempt.digest and not (is_lost and attempt.is_planned_otherwise)
        claim = claim_of(
            is_of_group=group_of(found) == plan.group,
            is_of_job=submission_of(found) == submission_of(wanted),
            is_of_plan=is_of_plan or rank == MASTER_RANK,
            may_have_run=True,
            is_lost=is_lost,
        )
        if claim is Claim.TAKEN:
            raise LaunchFailed(name_taken(name, plan.namespace))
        if claim is Claim.REPLACE:
            if not is_going:
                log.warning("removing %s, which is of a job with this id in another store", name)
                await self._client.delete(resource, name, found["metadata"]["uid"])
            raise _not_yet(wanted)
        if is_kept(found):  # its attempt has ended, and this store has lost the end
            raise LaunchFailed(diagnosis.DELETED.about(MASTER_RANK if rank is None else rank))
        if _owners(found) != _owners(wanted):
            raise LaunchFailed(diagnosis.DELETED.about(MASTER_RANK))
        if is_going and rank == MASTER_RANK:
            seen = observe_rank(rank, found, datetime.now(UTC))
            raise LaunchFailed(seen.diagnosis or diagnosis.DELETED.about(rank))
        if claim is Claim.PLANNED_OTHERWISE:
            raise LaunchFailed(planned_otherwise())
        if claim is Claim.RESTART and not is_going:
            log.info("removing %s, which has failed and is started again", name)
            await self._remove_lost(plan.group, found)
        if claim is Claim.RESTART or (is_going and rank is None):
            raise _not_yet(wanted)
        return found  # one that somebody else is deleting is ours, too, and fails when that is seen


def _not_yet(wanted: Manifest) -> NotYet:
    return NotYet(f"an earlier {wanted['metadata']['name']} is still being deleted")


def _was_there(wanted: Manifest, plan: KubernetesPlan) -> bool:
    return plan.was_launched and not restarts_of(wanted)


def _owners(manifest: Manifest) -> list[str]:
    return [owner["uid"] for owner in manifest["metadata"].get("ownerReferences") or []]
