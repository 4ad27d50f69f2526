"""Backend on plain processes: groups that outlive the service and are found again by their files."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Collection, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from job_tracker.backends.base import Observation, Watch
from job_tracker.backends.process import sweeping
from job_tracker.backends.process.diagnosis import records_lost
from job_tracker.backends.process.files import Folders, GroupFolder
from job_tracker.backends.process.group import ProcessGroup
from job_tracker.backends.process.plan import ProcessPlan, plan
from job_tracker.backends.process.ports import free_ports
from job_tracker.backends.process.settings import ProcessSettings
from job_tracker.backends.process.spool import ProcessSpool, on_disk
from job_tracker.backends.shared.watching import watched
from job_tracker.common.broadcast import Broadcast
from job_tracker.common.local_faults import remedy_of
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.errors import BackendUnavailable, LaunchFailed, NoRoom
from job_tracker.domain.group import GroupRef
from job_tracker.domain.job import Job
from job_tracker.frameworks.job_environment import ExtraEnvironment, nothing_more
from job_tracker.logs.records import BEGINNING

log = logging.getLogger(__name__)

_MOST_NAMED = 10


class ProcessBackend:
    """See Backend. Everything durable is in files (files.py); what is here is a cache of them.

    Several services may share the files. Logs are read by any of them, out of the files alone; a group is
    taken up, which includes clearing up after a supervisor that was killed, only by who observes,
    launches or stops.
    """

    def __init__(
        self,
        root: Path,
        settings: ProcessSettings,
        tell: ExtraEnvironment = nothing_more,
        *,
        store_id: str = "",
        most_log: int = 100 << 20,
    ) -> None:
        """Its jobs are in the store `store_id`; of each rank's log, `most_log` bytes are kept."""
        self._folders = Folders(root.absolute(), store_id)
        self._spool = ProcessSpool(root, store_id)
        self._root = root
        self._settings = settings
        self._store_id = store_id
        self._most_log = most_log
        self._tell = tell
        self._groups: dict[GroupRef, ProcessGroup] = {}
        self._promised: set[int] = set()
        self._feed: Broadcast[GroupRef, Observation] = Broadcast()
        self._has_looked = False
        self._looking = asyncio.Lock()

    async def launch(self, job: Job) -> Observation:
        plan = self._plan(job)
        await self._look_once()
        try:
            group = self._groups.get(plan.group)
            if group is not None and group.folder.group.home != plan.group.home:
                # Of a job of the same number, accepted before stores had ids, which the store no longer has.
                log.warning("stopping %s: it is of another job store", group.folder.path)
                await self.stop(group.folder.group, timedelta(0))
                group = None
            if group is None:
                folder = await asyncio.to_thread(self._folders.find, plan.group) or await self._create(plan)
                group = self._groups.get(plan.group) or self._take_up(folder)
            if group.damage or group.folder.roles != plan.roles:
                raise LaunchFailed(
                    records_lost(group.damage or f"{group.folder.path}/group.json has changed")
                )
            await group.forget_lost(plan.restarts)
            await asyncio.to_thread(_prepare, group.folder, plan, self._most_log)
            await group.start()
        except OSError as error:
            if remedy := remedy_of(error):
                raise NoRoom(f"{remedy} ({error})") from error
            raise LaunchFailed(_not_writable(self._root, error)) from error
        return group.observe()

    def watch(self) -> Watch:
        return watched(self._observe, self._feed)

    async def stop(
        self, group: GroupRef, grace: timedelta, keep_until: datetime | None = None
    ) -> Observation | None:
        await self._look_once()
        try:
            known = self._groups.get(group) or await self._found(group)
            if known is None:
                return None
            await known.stop(grace.total_seconds())
        except OSError as error:
            raise BackendUnavailable(f"{group.name} cannot be stopped now: {error}") from error
        seen = known.observe()
        if self._groups.pop(group, None) is not None:  # else a stop that runs beside this one was first
            await known.close()
            await self._retire(known, keep_until)
        return seen

    async def _found(self, group: GroupRef) -> ProcessGroup | None:
        """A group that another service may have launched since. What is left of any other is removed."""
        folder = await asyncio.to_thread(self._folders.find, group)
        if folder is None:
            await asyncio.to_thread(self._folders.forget_unborn, group)
            # Its folder may have been removed while it ran, when no service was there to see that.
            await asyncio.to_thread(sweeping.kill_all_below, self._folders.path_of(group))
            return None
        known = self._groups.get(group) or self._take_up(folder)
        await known.follow()
        return known

    async def sweep(self, now: datetime, forgotten: Collection[GroupRef] = ()) -> None:
        def clean_up() -> None:
            self._folders.sweep(now)
            for group in forgotten:
                self._folders.remove(group)

        await on_disk(self._root, clean_up)

    def logs(
        self,
        group: GroupRef,
        rank: int,
        *,
        follow: bool = False,
        after: bytes = BEGINNING,
        tail_lines: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        ended = known.ended_of(rank) if follow and (known := self._groups.get(group)) else None
        return self._spool.read(group, rank, follow=follow, ended=ended, after=after, tail_lines=tail_lines)

    async def close(self) -> None:
        for group in self._groups.values():
            await group.close()
        self._groups.clear()

    def _plan(self, job: Job) -> ProcessPlan:
        inherited = {name: os.environ[name] for name in self._settings.inherit if name in os.environ}
        secrets = self._settings.secret_environment.items()
        cores = len(os.sched_getaffinity(0))
        return plan(
            job,
            path=self._settings.path,
            extra_environment=self._tell(job),
            inherited={**inherited, **{name: secret.get_secret_value() for name, secret in secrets}},
            cores=cores,
        )

    async def _observe(self) -> Mapping[GroupRef, Observation]:
        await self._look()
        return {ref: group.observe() for ref, group in self._groups.items()}

    async def _retire(self, group: ProcessGroup, keep_until: datetime | None) -> None:
        try:
            await asyncio.to_thread(self._folders.retire, group.folder, keep_until)
        except FileNotFoundError:
            pass  # another service was first
        except OSError as error:
            self._groups[group.folder.group] = group  # it is still among the live ones
            raise BackendUnavailable(f"{group.folder.path} cannot be put away: {error}") from error

    async def _create(self, plan: ProcessPlan) -> GroupFolder:
        taken = {port for group in self._groups.values() for port in group.folder.ports}
        ports = free_ports(
            plan.ports, self._settings.first_port, self._settings.last_port, taken | self._promised
        )
        self._promised.update(ports)  # until the group is known, so that no two groups get one
        try:
            folder = await asyncio.to_thread(self._folders.create, plan.group, plan.roles, ports)
            return (self._groups.get(plan.group) or self._take_up(folder)).folder
        finally:
            self._promised.difference_update(ports)

    def _take_up(self, folder: GroupFolder) -> ProcessGroup:
        def publish(changed: ProcessGroup) -> None:
            self._feed.publish(changed.folder.group, changed.observe())

        group = ProcessGroup(folder, publish)
        self._groups[folder.group] = group
        return group

    async def _look_once(self) -> None:
        if not self._has_looked:
            await self._look()

    async def _look(self) -> None:
        """Take up groups that other services have launched, and let go of those that they have stopped."""
        async with self._looking:
            known = dict(self._groups)  # one that is launched or stopped while we look is not judged
            try:
                if not self._has_looked:
                    await asyncio.to_thread(self._say_strangers)
                unknown, gone = await asyncio.to_thread(self._folders.compare, known)
            except OSError as error:
                raise BackendUnavailable(f"{self._root} cannot be read: {error}") from error
            for ref in gone:
                if self._groups.get(ref) is known[ref]:
                    await self._miss(known[ref])
            for folder in unknown:
                if folder.group not in self._groups:
                    self._take_up(folder)
            # The old ones as well: another service may have completed a launch that was cut short here.
            await asyncio.gather(*(self._follow(group) for group in list(self._groups.values())))
            self._has_looked = True

    def _say_strangers(self) -> None:
        if strangers := self._folders.strangers():
            log.warning(
                "%s: %d groups are of other job stores than %s, and are left alone: %s",
                *(self._root, len(strangers), self._store_id, ", ".join(strangers[:_MOST_NAMED])),
            )

    async def _miss(self, group: ProcessGroup) -> None:
        """See to a group whose folder is gone: it was stopped, or its folder was removed while it runs."""
        if not group.is_running:
            await self._groups.pop(group.folder.group).close()
        elif not group.damage:
            group.damage = f"{group.folder.path} was removed"
            log.error("%s was removed while its processes run; the group is ended", group.folder.path)
            self._feed.publish(group.folder.group, group.observe())

    async def _follow(self, group: ProcessGroup) -> None:
        """Follow the group; what is wrong with one holds up no other."""
        try:
            await group.follow()
        except OSError as error:
            log.warning("%s cannot be looked at now: %s", group.folder.path, error)


def _prepare(folder: GroupFolder, plan: ProcessPlan, most_log: int) -> None:
    for rank, restarts in enumerate(plan.restarts):
        place = folder.rank(rank)
        if place.processes() is None:
            environment = plan.environment_of(rank, folder.ports, place.path)
            argv = plan.argv(rank, folder.ports)
            place.prepare(argv, environment, plan.memory_limit_bytes, most_log, restarts)


def _not_writable(root: Path, error: OSError) -> Diagnosis:
    return Diagnosis(
        category=Category.STORAGE_NOT_WRITABLE,
        summary=f"The folder for the job's files, {root}, cannot be written.",
        resolution="Check its permissions and the free space of its disk, then submit the job again.",
        detail=str(error),
    )
