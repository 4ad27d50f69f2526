"""Backend on a Docker engine: see Backend in base.py, and docs/architecture.md."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

from job_tracker.backends.base import Observation
from job_tracker.backends.docker.cache import ContainerCache, WatchTiming
from job_tracker.backends.docker.client import Access, DockerClient
from job_tracker.backends.docker.endings import Endings
from job_tracker.backends.docker.engine_errors import Conflict, NotFound, Unreachable
from job_tracker.backends.docker.groups import Groups
from job_tracker.backends.docker.images import Images
from job_tracker.backends.docker.launch import Launcher
from job_tracker.backends.docker.logs import LiveLogs
from job_tracker.backends.docker.plan import DockerPlan, PlanOptions, plan
from job_tracker.backends.docker.status import removed
from job_tracker.backends.docker.stopping import Stopper
from job_tracker.backends.shared.kept_logs import KeptLogs
from job_tracker.domain.errors import LaunchFailed
from job_tracker.domain.group import MASTER_RANK, GroupRef
from job_tracker.domain.job import Job
from job_tracker.frameworks.job_environment import ExtraEnvironment, nothing_more
from job_tracker.logs.records import BEGINNING


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerOptions:
    """What the backend needs to know of the engine, besides what is planned."""

    plan: PlanOptions
    access: Access = field(default_factory=Access)
    calls: int = 16
    call_seconds: int = 30
    store_id: str = ""
    """Of the store that its jobs are in."""
    timing: WatchTiming = field(default_factory=WatchTiming)


class DockerBackend:
    """See Backend. Everything durable is on the engine, but for the logs of groups that were stopped."""

    def __init__(
        self,
        root: Path,
        options: DockerOptions,
        tell: ExtraEnvironment = nothing_more,
    ) -> None:
        """Kept logs are put below `root`. Nothing is connected to yet."""
        self._options = options
        self._tell = tell
        instance = options.plan.instance
        self._client = DockerClient(options.access, calls=options.calls, call_seconds=options.call_seconds)
        self._groups = Groups()
        endings = Endings(self._client, instance=instance)
        self._cache = ContainerCache(
            self._client, endings, self._groups, instance=instance, timing=options.timing
        )
        self._images = Images(self._client)
        self._launches: WeakValueDictionary[GroupRef, asyncio.Lock] = WeakValueDictionary()
        self._kept = KeptLogs(
            root, options.plan.most_log, Unreachable, gone=(NotFound, Conflict), store_id=options.store_id
        )
        self._live = LiveLogs(self._client, self._groups)
        self._stopper = Stopper(
            self._client, self._cache, self._groups, endings, self._live, self._kept, instance=instance
        )
        self._launcher = Launcher(
            self._client, self._cache, self._groups, self._images, self._stopper.remove_lost
        )

    async def connect(self) -> None:
        """Look whether the engine lets us in. Raises BackendRefused if it does not."""
        await self._client.connect()

    def plan(self, job: Job) -> DockerPlan:
        """See Backend."""
        return plan(job, self._options.plan, self._tell(job))

    async def launch(self, plan: DockerPlan) -> Observation:
        """See Backend."""
        await self._cache.sync()
        one_at_a_time = self._launches.setdefault(plan.group, asyncio.Lock())
        async with one_at_a_time:
            known = self._groups.get(plan.group)
            if known is not None and known.ending is not None:
                if any(each.submission == plan.submission for each in known.containers.values()):
                    raise LaunchFailed(removed(MASTER_RANK))  # the attempt has ended; its store lost the end
                await self._stopper.stop(plan.group, timedelta(0), keep_logs=False)
                await self._stopper.clear(plan.group)
            group = self._groups.begin(plan.group, plan.instances)
            await self._launcher.launch(plan, group)
            group.launching = False
            return self._groups.observe(group)

    async def observe(self) -> Mapping[GroupRef, Observation]:
        """See Backend."""
        await self._cache.sync()
        return self._groups.observe_all()

    async def watch(self) -> AsyncIterator[tuple[GroupRef, Observation]]:
        """See Backend."""
        with self._groups.feed.subscribe() as changes:
            async for change in changes:
                yield change

    async def stop(
        self, group: GroupRef, grace: timedelta, keep_until: datetime | None = None
    ) -> Observation | None:
        """See Backend."""
        await self._cache.sync()
        return await self._stopper.stop(group, grace, keep_until)

    async def sweep(self, now: datetime) -> None:
        """See Backend. Also removes networks and markers that a service which was killed has left."""
        await self._kept.sweep()
        await self._cache.sync()
        await self._stopper.sweep(now)

    async def logs(
        self,
        group: GroupRef,
        rank: int,
        *,
        follow: bool = False,
        after: bytes = BEGINNING,
        tail_lines: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """See Backend."""
        await self._cache.sync()
        live = self._groups.get(group)
        if live is None or live.is_kept or rank >= live.instances:
            pieces = self._kept.read(group, rank, after=after, tail_lines=tail_lines)
        else:
            read = partial(self._live.read, live, rank, follow=follow, after=after, tail_lines=tail_lines)
            current = live.restarts_of(rank)
            pieces = self._kept.read_on(group, rank, current, read, after=after, tail_lines=tail_lines)
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece

    async def stopped(self) -> Sequence[GroupRef]:
        """See Backend."""
        lives = {group.ref for group in self._groups if not group.is_kept}
        return [group for group in self._kept.groups() if group not in lives]

    async def drop_logs(self, group: GroupRef) -> None:
        """See Backend."""
        await self._kept.discard(group)

    async def discard(self, group: GroupRef) -> None:
        """See Backend."""
        await self._cache.sync()
        known = self._groups.get(group)
        if known is not None and known.is_kept:
            await self._stopper.clear(group)
        await self._kept.discard(group)

    async def close(self) -> None:
        """See Backend."""
        await self._stopper.close()
        await self._images.close()
        await self._cache.close()
        self._groups.close()
        await self._client.close()
