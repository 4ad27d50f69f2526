"""The Services of live groups: one that is deleted from outside is made again, and the outage is noted."""

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
    """Watches the Services of the service named `instance`, beside its groups.

    A Service is made again from the group's master pod, which bears all that is needed: so it is as it was
    launched, whatever the configuration is by now. `remove` removes the Service of a group.
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
        """Nothing is watched before the first `sync`."""
        self._client = client
        self._groups = groups
        self._remove = remove
        self._port = port
        self._cache = PodCache(client, selector(instance), self._take, timing, "services")
        self._there: dict[GroupRef, str] = {}
        self._making: SharedWork[GroupRef, None] = SharedWork()
        self._has_looked = False
        groups.on_found = self._found

    async def sync(self) -> None:
        """See all Services once, and follow them from then on."""
        await self._cache.sync()
        if not self._has_looked:
            self._has_looked = True
            for group in self._groups:
                self._found(group)

    def put(self, service: Manifest) -> None:
        """Take in a Service as an answer showed it, before the watch tells of it."""
        self._cache.put(service)

    async def sweep(self) -> None:
        """Remove Services of groups without a pod, and make again those that are still missing."""
        for ref in list(self._there):
            if self._groups.get(ref) is None:
                # Their master was deleted, but told to leave them.
                try:
                    await self._client.read("pods", naming.instance_name(ref.name, MASTER_RANK))
                except NotFound:
                    log.warning("removing the Service of group %s, which has no pods", ref.name)
                    await self._remove(ref)
        for group in self._groups:
            self._lost(group, None)
        await self._making.wait()

    async def close(self) -> None:
        """Stop following."""
        await self._making.close()
        await self._cache.close()

    def _take(self, changes: Sequence[tuple[Manifest, bool]]) -> None:
        for service, gone in changes:
            ref = group_of(service)
            if ref is None or service["metadata"]["name"] != naming.master_service_name(ref.name):
                continue  # another's, with our label on it
            group = self._groups.get(ref)
            if not gone:
                self._there[ref] = service["metadata"]["uid"]
                if group is not None and group.outage is not None and group.outage.until is None:
                    group.outage = replace(group.outage, until=datetime.now(UTC))
            elif self._there.get(ref) == service["metadata"]["uid"]:
                del self._there[ref]
                if group is not None:
                    self._lost(group, datetime.now(UTC))

    def _found(self, group: PodGroup) -> None:
        """Look whether a group has its Service that was launched before we looked."""
        if self._has_looked:
            self._lost(group, None)

    def _lost(self, group: PodGroup, since: datetime | None) -> None:
        if not self._is_missing(group):
            return
        if group.outage is None or group.outage.until is not None:
            name = naming.master_service_name(group.ref.name)
            log.warning("Service %s is missing, and not by our doing: it is made again", name)
            group.outage = Outage(name, since)
        self._making.begin(group.ref, lambda: self._make_again(group), "service", detached=True)

    def _is_missing(self, group: PodGroup) -> bool:
        return self._has_looked and group.needs_service and group.ref not in self._there

    async def _make_again(self, group: PodGroup) -> None:
        known = group.living.get(MASTER_RANK)
        if known is None or not self._is_missing(group):
            return
        try:
            # Read anew, and whole: it is rare, and what is remembered of pods need not be all of them.
            master = await self._client.read("pods", known["metadata"]["name"])
            told = master["metadata"]
            if told["uid"] != known["metadata"]["uid"] or "deletionTimestamp" in told:
                return
            wanted = manifests.service_of(master, self._port)
            self._cache.put(await self._client.create("services", owned_by(wanted, master)))
        except (AlreadyExists, NotFound):
            pass  # a launch, or another replica, was first; or the master has gone meanwhile
        except (ApiError, BackendRefused) as error:
            name = naming.master_service_name(group.ref.name)
            log.warning("Service %s cannot be made again: %s", name, error)
