"""The Kubernetes backend: groups of pods. They outlive the service, which finds them by their labels."""

import logging
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta

from job_tracker.backends.base import Observation, Watch
from job_tracker.backends.kubernetes.access import Access
from job_tracker.backends.kubernetes.api_errors import (
    AlreadyExists,
    Forbidden,
    Invalid,
    NotFound,
    QuotaExceeded,
)
from job_tracker.backends.kubernetes.cache import PodCache, WatchTiming
from job_tracker.backends.kubernetes.client import KubernetesClient
from job_tracker.backends.kubernetes.events import EventRecorder
from job_tracker.backends.kubernetes.gangs import GroupMarks
from job_tracker.backends.kubernetes.groups import Groups, is_running
from job_tracker.backends.kubernetes.inventory import NodeInventory
from job_tracker.backends.kubernetes.keeping import Keeper
from job_tracker.backends.kubernetes.labels import selector
from job_tracker.backends.kubernetes.launch import Launcher
from job_tracker.backends.kubernetes.log_ends import LogEnds
from job_tracker.backends.kubernetes.logs import PodLogs
from job_tracker.backends.kubernetes.options import CONTAINER
from job_tracker.backends.kubernetes.plan import KubernetesPlan, plan
from job_tracker.backends.kubernetes.pod_groups import PodGroups
from job_tracker.backends.kubernetes.services import MasterServices
from job_tracker.backends.kubernetes.settings import KubernetesSettings
from job_tracker.backends.kubernetes.stopping import Stopper
from job_tracker.backends.kubernetes.workloads import Workloads
from job_tracker.backends.shared.gathering import beginning_of
from job_tracker.backends.shared.watching import watched
from job_tracker.domain.errors import BackendRefused, InvalidField, LaunchFailed, NotPossible
from job_tracker.domain.group import GroupRef
from job_tracker.domain.job import Job
from job_tracker.domain.observers import RequestObserver, ignore_request
from job_tracker.frameworks.job_environment import ExtraEnvironment, nothing_more
from job_tracker.logs.records import BEGINNING
from job_tracker.logs.spool import FolderSpool

log = logging.getLogger(__name__)

_NO_RIGHT = "the service may not run commands in pods (see deploy/optional/stacks)"


class KubernetesBackend:
    """See Backend. All durable state is in the cluster, except for the logs of stopped groups."""

    def __init__(
        self,
        spool: FolderSpool,
        settings: KubernetesSettings,
        extra_environment: ExtraEnvironment = nothing_more,
        on_request: RequestObserver = ignore_request,
        *,
        stop_grace: timedelta = timedelta(seconds=10),
        lost_margin: float = 20.0,
        timing: WatchTiming | None = None,
        followed: Collection[str] = (),
        marks: GroupMarks | None = None,
        workload_seconds: float = 10.0,
    ) -> None:
        """Prepare the backend without connecting. The logs of stopped groups go to the spool.

        `followed` has the names of the flavors whose capacity is that of their nodes. `marks` are the labels
        and annotations of pods for Kueue (see GroupMarks); None: pods get those of `kubernetes.gang` instead.
        The Workloads of groups that wait for Kueue are read every `workload_seconds` seconds. A pod that
        still exists `lost_margin` seconds after its grace period counts as lost with its node.
        """
        self._settings = settings
        self._extra_environment = extra_environment
        self._stop_grace = stop_grace
        self._marks = marks
        instance, timing = settings.instance, timing or WatchTiming()
        access = Access(kubeconfig=settings.kubeconfig, context=settings.context)
        self.client = KubernetesClient(access, settings.namespace, on_request=on_request)
        self.inventory = NodeInventory(settings, followed, timing, on_request) if followed else None
        """The nodes of the followed flavors; None if there are none."""
        self._groups = Groups(settings)
        self._cache = PodCache(self.client, selector(instance), self._groups.take, timing)
        self.events = EventRecorder(self.client, self._groups, settings)
        self._spool = spool
        spool.lives = lambda ref: self._groups.get(ref) is not None
        self._log_ends = LogEnds(self.client, self._groups)
        self._logs = PodLogs(self.client, self._groups, spool)
        self._workloads = Workloads(self.client, self._groups, seconds=workload_seconds)
        self._keeper = Keeper(self.client, self._cache, instance=instance)
        pod_groups = PodGroups(self.client, settings.gang.resource)
        self._stopper = Stopper(
            self.client,
            self._cache,
            self._groups,
            self._logs,
            self._keeper,
            pod_groups,
            self._workloads,
            instance=instance,
            margin=lost_margin,
        )
        self._services = MasterServices(
            self.client,
            self._groups,
            self._stopper.remove_service,
            instance=instance,
            port=settings.master_port,
            timing=timing,
        )
        self._launcher = Launcher(
            self.client, self._cache.put, self._services.put, self._stopper.remove_lost, pod_groups
        )

    @property
    def silent_seconds(self) -> float | None:
        """Seconds since the API server last reported on pods; None before the first report."""
        return self._cache.silent_seconds

    async def connect(self) -> None:
        """Check that the cluster accepts the service.

        Raises BackendRefused if the cluster refuses the service, or if the kubeconfig cannot be used. An
        unreachable cluster is accepted.
        """
        try:
            await self.client.connect()
            if self.inventory is not None:
                await self.inventory.check()
        except BackendRefused:
            await self._disconnect()
            raise

    async def check(self, job: Job) -> None:
        """Raise InvalidField if the job cannot be planned, or if the API server refuses its master pod in a
        dry run.

        A used-up quota or a missing right of the service is not an error here: the launch reports it.
        """
        try:
            await self.client.create("pods", self._plan(job).pods[0], dry_run=True)
        except LaunchFailed as error:
            raise InvalidField("algorithm", str(error)) from error
        except (AlreadyExists, QuotaExceeded):
            return
        except (Invalid, Forbidden) as error:
            if isinstance(error, Invalid) or " cannot create resource " not in error.message:
                raise InvalidField("pod_options", f"the cluster refuses the pod: {error.message}") from error

    async def launch(self, job: Job) -> Observation:
        plan = self._plan(job)
        await self._cache.sync()
        group = self._groups.begin(plan.group, plan.instances)
        await self._launcher.launch(plan, group.pods)
        group.launching = False
        return self._groups.observe(group)

    def watch(self) -> Watch:
        return watched(self._look, self._groups.feed)

    async def stop(
        self, group: GroupRef, grace: timedelta, keep_until: datetime | None = None
    ) -> Observation | None:
        await self._cache.sync()
        return await self._stopper.stop(group, grace, keep_until)

    async def sweep(self, now: datetime, forgotten: Collection[GroupRef] = ()) -> None:
        """See Backend. Also removes Services without pods, and recreates missing Services."""
        await self._spool.sweep()
        await self._keeper.sweep(now, forgotten)
        for group in forgotten:
            await self._spool.drop(group)
        await self._services.sync()
        await self._cache.sync()
        await self._services.sweep()

    async def logs(
        self,
        group: GroupRef,
        rank: int,
        *,
        follow: bool = False,
        after: bytes = BEGINNING,
        tail_lines: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        await self._cache.sync()
        pieces = self._logs.read(group, rank, follow=follow, after=after, tail_lines=tail_lines)
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece

    async def execute(self, group: GroupRef, rank: int, command: Sequence[str], most_bytes: int) -> bytes:
        """See RankAccess."""
        known = self._groups.get(group)
        pod = known.living.get(rank) if known is not None else None
        if pod is None or not is_running(pod):
            raise NotPossible(f"rank {rank} does not run")
        try:
            pieces = self.client.execute(pod["metadata"]["name"], CONTAINER, command)
            return await beginning_of(pieces, most_bytes)
        except Forbidden as error:
            raise NotPossible(_NO_RIGHT) from error
        except (Invalid, NotFound) as error:
            raise NotPossible(error.message) from error

    async def close(self) -> None:
        await self._log_ends.close()
        await self._workloads.close()
        await self.events.close()
        await self._services.close()
        await self._stopper.close()
        await self._cache.close()
        self._groups.close()
        await self._disconnect()

    async def _disconnect(self) -> None:
        await self.client.close()
        if self.inventory is not None:
            await self.inventory.close()

    def _plan(self, job: Job) -> KubernetesPlan:
        return plan(job, self._settings, self._extra_environment(job), self._stop_grace, self._marks)

    async def _look(self) -> Mapping[GroupRef, Observation]:
        await self._services.sync()  # this comes first: a missing Service changes the diagnosis of a failure
        await self._cache.sync()
        return self._groups.observe_all()
