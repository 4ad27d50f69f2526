"""Watches the Services of live groups, recreates missing ones, and records the outages."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from job_tracker.backends.kubernetes import manifests
from job_tracker.backends.kubernetes.api_errors import AlreadyExists, ApiError, NotFound
from job_tracker.backends.kubernetes.cache import PodCache, WatchTiming
from job_tracker.backends.kubernetes.client import KubernetesClient
from job_tracker.backends.kubernetes.groups import Groups, Outage, PodGroup
from job_tracker.backends.kubernetes.labels import Manifest, group_of, owned_by, selector
from job_tracker.common.tasks import SharedWork
from job_tracker.domain import naming
from job_tracker.domain.errors import BackendRefused
from job_tracker.domain.group import MASTER_RANK, GroupRef

log = logging.getLogger(__name__)


class MasterServices:
    """Watches the Kubernetes Services of the groups that belong to the service named `instance`.

    A Service is recreated from the group's master pod, so it is the same as at the launch even if the
    configuration has changed. `remove` removes the Service of a group.
    """

    def __init__(
        self,
        client: KubernetesClient,
        groups: Groups,
        remove: Callable[[GroupRef], Awaitable[None]],
        *,
        instance: str,
        port: int,
        timing: WatchTiming,
    ) -> None:
        """Prepare without watching. The first `sync` starts the watch."""
        self._client = client
        self._groups = groups
        self._remove = remove
        self._port = port
        self._cache = PodCache(client, selector(instance), self._take, timing, "services")
        self._uids: dict[GroupRef, str] = {}
        self._recreating: SharedWork[GroupRef, None] = SharedWork()
        self._is_synced = False
        groups.on_found = self._check_found

    async def sync(self) -> None:
        """On the first call, list all Services, recreate missing ones, and start to watch all Services.

        Raises ApiError if the list fails.
        """
        await self._cache.sync()
        if not self._is_synced:
            self._is_synced = True
            for group in self._groups:
                self._check_found(group)

    def put(self, service: Manifest) -> None:
        """Add a Service from an API answer, before the watch reports it."""
        self._cache.put(service)

    async def sweep(self) -> None:
        """Remove Services whose group is unknown and has no master pod. Recreate missing Services."""
        for ref in list(self._uids):
            if self._groups.get(ref) is None:
                # A Service outlives its master if the master was deleted with --cascade=orphan.
                try:
                    await self._client.read("pods", naming.instance_name(ref.name, MASTER_RANK))
                except NotFound:
                    log.warning("removing the Service of group %s, which has no pods", ref.name)
                    await self._remove(ref)
        for group in self._groups:
            self._recreate_if_missing(group, None)
        await self._recreating.wait()

    async def close(self) -> None:
        """Stop watching."""
        await self._recreating.close()
        await self._cache.close()

    def _take(self, changes: Sequence[tuple[Manifest, bool]]) -> None:
        for service, gone in changes:
            ref = group_of(service)
            if ref is None or service["metadata"]["name"] != naming.master_service_name(ref.name):
                continue  # a foreign Service with our label
            group = self._groups.get(ref)
            if not gone:
                self._uids[ref] = service["metadata"]["uid"]
                if group is not None and group.outage is not None and group.outage.until is None:
                    group.outage = replace(group.outage, until=datetime.now(UTC))
            elif self._uids.get(ref) == service["metadata"]["uid"]:
                del self._uids[ref]
                if group is not None:
                    self._recreate_if_missing(group, datetime.now(UTC))

    def _check_found(self, group: PodGroup) -> None:
        """Recreate the Service of a newly found group, if it is missing.

        Does nothing for a group that this process is launching (see PodGroup.needs_service), nor before the
        first `sync`, which checks all groups.
        """
        if self._is_synced:
            self._recreate_if_missing(group, None)

    def _recreate_if_missing(self, group: PodGroup, since: datetime | None) -> None:
        if not self._is_missing(group):
            return
        if group.outage is None or group.outage.until is not None:
            name = naming.master_service_name(group.ref.name)
            log.warning("Service %s is missing; recreating it", name)
            group.outage = Outage(name, since)
        self._recreating.begin(group.ref, lambda: self._recreate(group), "service", detached=True)

    def _is_missing(self, group: PodGroup) -> bool:
        return self._is_synced and group.needs_service and group.ref not in self._uids

    async def _recreate(self, group: PodGroup) -> None:
        known = group.living.get(MASTER_RANK)
        if known is None or not self._is_missing(group):
            return
        try:
            # Read the complete pod again: the cache keeps only parts of it.
            master = await self._client.read("pods", known["metadata"]["name"])
            metadata = master["metadata"]
            if metadata["uid"] != known["metadata"]["uid"] or "deletionTimestamp" in metadata:
                return
            wanted = manifests.service_of(master, self._port)
            self._cache.put(await self._client.create("services", owned_by(wanted, master)))
        except (AlreadyExists, NotFound):
            pass  # a launch or another replica has created it already, or the master is gone
        except (ApiError, BackendRefused) as error:
            name = naming.master_service_name(group.ref.name)
            log.warning("Service %s cannot be recreated: %s", name, error)
