"""Creates or adopts the objects of a plan.

The PodGroup comes first, if the plan has one. The master comes next, because it owns all other objects.

A pod of an attempt is not created a second time, because the first pod may have run. If any pod of the
attempt is known and the master is missing, the attempt has failed. A worker is not created again if it was
ever seen, or if the group was ever complete. Only a restart of a rank creates its pod again.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from job_tracker.backends.kubernetes import diagnosis
from job_tracker.backends.kubernetes.api_errors import AlreadyExists, ApiError, NotFound
from job_tracker.backends.kubernetes.client import KubernetesClient, Resource
from job_tracker.backends.kubernetes.kueue import is_gated
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
from job_tracker.backends.kubernetes.pod_groups import PodGroups
from job_tracker.backends.kubernetes.refusals import diagnose_refusal, name_taken
from job_tracker.backends.kubernetes.status import observe_rank
from job_tracker.backends.shared.claims import Claim, claim_of
from job_tracker.backends.shared.gathering import gathered
from job_tracker.backends.shared.instances import configuration_changed
from job_tracker.backends.shared.retries import NotYet, repeated
from job_tracker.domain.errors import LaunchFailed
from job_tracker.domain.group import MASTER_RANK, GroupRef

log = logging.getLogger(__name__)

_DELETION_SECONDS = 90.0
_POLL_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The attempt that is being launched: its plan, and all its pods that were ever seen, by rank.

    `digest` is the digest of the plan from which the master was made: the current plan, or a plan of an
    earlier configuration.
    """

    plan: KubernetesPlan
    known: Mapping[int, Manifest]
    digest: str

    @property
    def has_other_plan(self) -> bool:
        """Whether the attempt was begun with another configuration."""
        return self.digest != self.plan.digest

    def may_create(self, wanted: Manifest) -> bool:
        """Return whether the wanted object may be created.

        A pod may be created if it has certainly not existed since the last restart of its rank. If the
        attempt was begun with another configuration, no object may be created.
        """
        rank = rank_of(wanted)
        if self.has_other_plan:
            return False
        if rank is None:
            return True  # the object is the Service, which runs no process
        ours = {
            number: pod for number, pod in self.known.items() if submission_of(pod) == submission_of(wanted)
        }
        if rank in ours:
            return restarts_of(ours[rank]) < restarts_of(wanted)
        if rank == MASTER_RANK and ours:
            return False  # the master has existed: the other pods were created after it
        return restarts_of(wanted) > 0 or not self.plan.was_launched


class Launcher:
    """Launches groups.

    `on_pod` gets each pod that was created or found, and `on_service` each such Service. `remove_lost`
    removes a pod whose rank must be restarted.
    """

    def __init__(
        self,
        client: KubernetesClient,
        on_pod: Callable[[Manifest], None],
        on_service: Callable[[Manifest], None],
        remove_lost: Callable[[GroupRef, Manifest], Awaitable[None]],
        pod_groups: PodGroups,
    ) -> None:
        self._client = client
        self._pod_groups = pod_groups
        self._on_pod = on_pod
        self._on_service = on_service
        self._remove_lost = remove_lost

    async def launch(self, plan: KubernetesPlan, known: Mapping[int, Manifest]) -> None:
        """Ensure that the objects of the plan exist, except for pods that must not be created again.

        Safe to repeat after an interruption.

        `known` has all pods of the group that were ever seen, by rank, even gone pods. Raises LaunchFailed if
        a retry cannot help, for example because the cluster refuses an object, a name is taken, or the
        attempt has lost its master. Raises BackendUnavailable if a retry may help. In both cases, the objects
        that were created remain.
        """
        pod_group = await self._pod_groups.claim(plan)
        master = await self._claim("pods", plan.pods[0], _Attempt(plan, known, plan.digest))
        if master is None:
            raise LaunchFailed(diagnosis.DELETED.about(MASTER_RANK))
        if pod_group is not None:
            await self._pod_groups.give(pod_group, master)
        attempt = _Attempt(plan, known, digest_of(master) or "")
        owned: list[tuple[Resource, Manifest]] = [("pods", pod) for pod in plan.pods[1:]]
        if plan.service is not None:
            owned.append(("services", plan.service))
        claims: list[Awaitable[object]] = [
            self._claim(kind, owned_by(manifest, master), attempt) for kind, manifest in owned
        ]
        if plan.secret is not None and not attempt.has_other_plan:
            # The master owns the Secret, so the master is created first, and its node waits for the Secret.
            # If a Secret with this name exists, an earlier try has created it, with the same content. That
            # cannot be checked, because the service lacks the right to read Secrets.
            claims.append(self._create("secrets", owned_by(plan.secret, master), plan))
        # Wait for all creations even if one fails, so that no object is created after the return.
        await gathered(claims)

    async def _claim(self, resource: Resource, wanted: Manifest, attempt: _Attempt) -> Manifest | None:
        """Create or adopt the object, and return it; None if it is gone and must not be created again.

        If an earlier object of this name is being deleted, wait for its end.
        """
        claim = partial(self._create_or_adopt, resource, wanted, attempt)
        return await repeated(claim, _DELETION_SECONDS, _POLL_SECONDS)

    async def _create_or_adopt(
        self, resource: Resource, wanted: Manifest, attempt: _Attempt
    ) -> Manifest | None:
        may_create = attempt.may_create(wanted)
        claimed = await self._create(resource, wanted, attempt.plan) if may_create else None
        if claimed is None:
            found = await self._read(resource, wanted["metadata"]["name"])
            if found is not None:
                claimed = await self._adopt(resource, found, wanted, attempt)
            elif may_create:
                raise _not_yet(wanted)  # the object existed a moment ago
            elif attempt.has_other_plan and not _existed(wanted, attempt.plan):
                raise LaunchFailed(configuration_changed())
            else:
                return None
        (self._on_pod if resource == "pods" else self._on_service)(claimed)
        return claimed

    async def _create(self, resource: Resource, wanted: Manifest, plan: KubernetesPlan) -> Manifest | None:
        """Create the object, and return it; return None if the name is taken."""
        try:
            made = await self._client.create(resource, wanted)
        except AlreadyExists:
            return None
        except ApiError as error:
            refusal = diagnose_refusal(error, wanted["metadata"]["name"], plan.namespace)
            if refusal is None:
                raise
            raise LaunchFailed(refusal) from error
        if is_gated(wanted) and not is_gated(made):  # old API servers drop fields that they do not know
            raise LaunchFailed(diagnosis.NO_GATES)
        return made

    async def _read(self, resource: Resource, name: str) -> Manifest | None:
        try:
            return await self._client.read(resource, name)
        except NotFound:
            return None

    async def _adopt(
        self, resource: Resource, found: Manifest, wanted: Manifest, attempt: _Attempt
    ) -> Manifest:
        """Return the existing object if it is the wanted one.

        Raises NotYet while an old object is being deleted, and LaunchFailed if the launch can neither use nor
        replace the object.
        """
        name, rank, plan = wanted["metadata"]["name"], rank_of(wanted), attempt.plan
        is_being_deleted = "deletionTimestamp" in found["metadata"]
        is_lost = restarts_of(found) < restarts_of(wanted)
        is_of_plan = digest_of(found) == attempt.digest and not (is_lost and attempt.has_other_plan)
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
            if not is_being_deleted:
                log.warning("removing %s: it belongs to a job with the same id in another store", name)
                await self._client.delete(resource, name, found["metadata"]["uid"])
            raise _not_yet(wanted)
        if is_kept(found):  # the attempt has ended, but the store has lost this fact
            raise LaunchFailed(diagnosis.DELETED.about(MASTER_RANK if rank is None else rank))
        if _owners(found) != _owners(wanted):
            raise LaunchFailed(diagnosis.DELETED.about(MASTER_RANK))
        if is_being_deleted and rank == MASTER_RANK:
            seen = observe_rank(rank, found, datetime.now(UTC))
            raise LaunchFailed(seen.diagnosis or diagnosis.DELETED.about(rank))
        if claim is Claim.OTHER_PLAN:
            raise LaunchFailed(configuration_changed())
        if claim is Claim.RESTART:
            await self._remove_lost(plan.group, found)
        if claim is Claim.RESTART or (is_being_deleted and rank is None):
            raise _not_yet(wanted)
        return found  # if something other than the service is deleting the pod, its failure is observed later


def _not_yet(wanted: Manifest) -> NotYet:
    return NotYet(f"an earlier {wanted['metadata']['name']} is still being deleted")


def _existed(wanted: Manifest, plan: KubernetesPlan) -> bool:
    return plan.was_launched and not restarts_of(wanted)


def _owners(manifest: Manifest) -> list[str]:
    return [owner["uid"] for owner in manifest["metadata"].get("ownerReferences") or []]
