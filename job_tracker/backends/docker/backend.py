"""The Docker backend: see Backend in base.py, and docs/architecture-backends.md."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from weakref import WeakValueDictionary

from job_tracker.backends.base import Observation, Watch
from job_tracker.backends.docker.cache import ContainerCache
from job_tracker.backends.docker.client import DockerClient
from job_tracker.backends.docker.endings import Endings
from job_tracker.backends.docker.engine_errors import Conflict, NotFound, Refused
from job_tracker.backends.docker.environments import KeptEnvironments
from job_tracker.backends.docker.groups import Groups
from job_tracker.backends.docker.images import Images
from job_tracker.backends.docker.kept_programs import KeptPrograms
from job_tracker.backends.docker.launch import Launcher
from job_tracker.backends.docker.logs import ContainerLogs
from job_tracker.backends.docker.plan import plan
from job_tracker.backends.docker.settings import DockerSettings
from job_tracker.backends.docker.status import removed
from job_tracker.backends.docker.stopping import Stopper
from job_tracker.backends.shared.gathering import beginning_of
from job_tracker.backends.shared.programs import for_program
from job_tracker.backends.shared.watching import watched
from job_tracker.domain.errors import BackendRefused, LaunchFailed, NotPossible
from job_tracker.domain.group import MASTER_RANK, GroupRef
from job_tracker.domain.job import Job
from job_tracker.frameworks.job_environment import ExtraEnvironment, nothing_more
from job_tracker.logs.records import BEGINNING
from job_tracker.logs.spool import FolderSpool
from job_tracker.trees.store import TreeStore


class DockerBackend:
    """See Backend. All durable state is on the engine, except the logs of stopped groups."""

    def __init__(
        self,
        spool: FolderSpool,
        settings: DockerSettings,
        extra_environment: ExtraEnvironment = nothing_more,
        trees: TreeStore | None = None,
    ) -> None:
        """Prepare the backend; the first call connects to the engine.

        Logs of stopped groups go to the spool. `trees` has the files of uploaded programs.
        """
        self._settings = settings
        self._extra_environment = extra_environment
        instance = settings.instance
        self._client = DockerClient(settings.base_url, call_seconds=settings.call_seconds)
        self._groups = Groups()
        endings = Endings(self._client, instance=instance)
        self._cache = ContainerCache(self._client, endings, self._groups, instance=instance)
        self._images = Images(self._client)
        self._launches: WeakValueDictionary[GroupRef, asyncio.Lock] = WeakValueDictionary()
        self._spool = spool
        spool.lives = lambda ref: (group := self._groups.get(ref)) is not None and not group.is_kept
        self._logs = ContainerLogs(self._client, self._groups, spool)
        self._stopper = Stopper(
            self._client, self._cache, self._groups, endings, self._logs, instance=instance
        )
        self._programs = KeptPrograms(
            *(self._client, trees),
            instance=instance,
            keep=settings.keep_programs,
            most=settings.max_programs,
        )
        self._environments = KeptEnvironments(
            self._client, instance=instance, keep=settings.keep_requirements
        )
        self._launcher = Launcher(
            *(self._client, self._cache, self._groups, self._images, self._stopper.remove_lost),
            self._programs,
        )

    async def connect(self) -> None:
        """Check that the engine accepts calls.

        Raises BackendRefused if the engine runs, but refuses calls, or if its API is too old. An unreachable
        engine is accepted.
        """
        try:
            await self._client.connect()
        except BackendRefused:
            await self._client.close()
            raise

    async def launch(self, job: Job) -> Observation:
        planned = plan(job, self._settings, self._extra_environment(job), most_log=self._spool.most_log)
        await self._cache.sync()
        one_at_a_time = self._launches.setdefault(planned.group, asyncio.Lock())
        async with one_at_a_time:
            known = self._groups.get(planned.group)
            if known is not None and known.ending is not None:
                if any(each.submission == planned.submission for each in known.containers.values()):
                    # The attempt has ended, but the store has lost this fact.
                    raise LaunchFailed(removed(MASTER_RANK))
                await self._stopper.stop(planned.group, timedelta(0), keep_logs=False)
                await self._stopper.clear(planned.group)
            group = self._groups.begin(planned.group, planned.instances)
            try:
                await self._launcher.launch(planned, group)
            except LaunchFailed as error:
                if planned.program is None:
                    raise
                raise LaunchFailed(for_program(error.diagnosis, "docker")) from error
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
        """See Backend.

        Also removes what a crashed service left: networks, and the volumes that mark endings (endings.py).
        Also removes unused images of programs, and unused volumes with Python environments.
        """
        await self._spool.sweep()
        await self._cache.sync()
        await self._stopper.sweep(now, forgotten)
        await self._programs.sweep(now.timestamp())
        await self._environments.sweep(now.timestamp())
        for group in forgotten:
            await self._spool.drop(group)

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
        container = known.running.get(rank) if known is not None else None
        if container is None:
            raise NotPossible(f"rank {rank} does not run")
        try:
            return await beginning_of(self._client.execute(container.id, command), most_bytes)
        except (Conflict, NotFound, Refused) as error:
            raise NotPossible(error.message) from error

    async def close(self) -> None:
        await self._stopper.close()
        await self._images.close()
        await self._cache.close()
        self._groups.close()
        await self._client.close()

    async def _look(self) -> Mapping[GroupRef, Observation]:
        await self._cache.sync()
        return self._groups.observe_all()
