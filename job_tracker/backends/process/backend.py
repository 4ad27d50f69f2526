"""The process backend: groups of plain processes. They outlive the service, which finds them by its files."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from job_tracker.backends.base import Observation, Watch
from job_tracker.backends.process import beside, environments, sweeping
from job_tracker.backends.process.diagnosis import no_virtual_environment, records_lost
from job_tracker.backends.process.files import GroupFolder
from job_tracker.backends.process.folders import Folders
from job_tracker.backends.process.group import ProcessGroup
from job_tracker.backends.process.plan import ProcessPlan, plan
from job_tracker.backends.process.ports import free_ports
from job_tracker.backends.process.settings import ProcessSettings
from job_tracker.backends.process.spool import ProcessSpool, on_disk
from job_tracker.backends.process.working_copies import Unpack
from job_tracker.backends.shared.programs import files_damaged
from job_tracker.backends.shared.watching import watched
from job_tracker.common.broadcast import Broadcast
from job_tracker.common.local_faults import remedy_of
from job_tracker.domain import naming
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.errors import (
    BackendUnavailable,
    LaunchFailed,
    NoRoom,
    NotPossible,
    StorageUnavailable,
    TreeDamaged,
)
from job_tracker.domain.group import GroupRef
from job_tracker.domain.job import Job
from job_tracker.frameworks.job_environment import ExtraEnvironment, nothing_more
from job_tracker.logs.records import BEGINNING
from job_tracker.trees.store import TreeStore

log = logging.getLogger(__name__)

_MAX_NAMED = 10


class ProcessBackend:
    """See Backend. The durable state is in files (files.py); this object only caches this state.

    Several services may share the files. All of these services may read logs, because this needs only the
    files. Only the service that observes, launches or stops groups follows their ranks, and cleans up after
    killed supervisors.
    """

    def __init__(
        self,
        root: Path,
        settings: ProcessSettings,
        extra_environment: ExtraEnvironment = nothing_more,
        *,
        store_id: str = "",
        most_log: int = 100 << 20,
        trees: TreeStore | None = None,
        environments_root: Path | None = None,
    ) -> None:
        """Prepare to run the jobs of the store `store_id`. Of each rank's log, keep at most `most_log` bytes.

        `trees` has the files of uploaded programs, and `environments_root` is the folder of the Python
        environments that their requirements files ask for.
        """
        self._folders = Folders(root.absolute(), store_id)
        self._spool = ProcessSpool(root, store_id)
        self._root = root
        self._settings = settings
        self._store_id = store_id
        self._most_log = most_log
        self._trees = trees
        self._environments = (environments_root or root.parent / "environments").absolute()
        self._extra_environment = extra_environment
        self._groups: dict[GroupRef, ProcessGroup] = {}
        self._reserved_ports: set[int] = set()
        self._changes: Broadcast[GroupRef, Observation] = Broadcast()
        self._has_refreshed = False
        self._refreshing = asyncio.Lock()

    async def launch(self, job: Job) -> Observation:
        try:
            plan = self._plan(job)
        except OSError as error:
            raise _not_prepared(self._settings.program_caches or self._root, error) from error
        await self._refresh_once()
        try:
            group = self._groups.get(plan.group)
            store_id = naming.store_of(plan.group.home)
            if group is not None and naming.store_of(group.folder.group.home) != store_id:
                # The group belongs to another store: its job merely has the same id as this job. This happens
                # only if one of the jobs is from an earlier version, whose stores had no ids.
                log.warning("stopping group %s: it belongs to another job store", group.folder.path)
                await self.stop(group.folder.group, timedelta(0))
                group = None
            if group is None:
                _check_virtual_environment(plan)
                folder = await asyncio.to_thread(self._folders.find, plan.group) or await self._create(plan)
                group = self._groups.get(plan.group) or self._adopt(folder)
            if group.damage or group.folder.roles != plan.roles:
                raise LaunchFailed(
                    records_lost(group.damage or f"{group.folder.path}/group.json has changed")
                )
            await group.reset_for_restart(plan.restarts)
            await asyncio.to_thread(_prepare, group.folder, plan, self._most_log, self._unpack_of(plan))
            await group.start()
        except TreeDamaged as error:
            raise LaunchFailed(files_damaged(str(error))) from error
        except StorageUnavailable as error:
            raise BackendUnavailable(str(error)) from error
        except OSError as error:
            raise _not_prepared(self._root, error) from error
        return group.observe()

    def watch(self) -> Watch:
        return watched(self._observe, self._changes)

    async def stop(
        self, group: GroupRef, grace: timedelta, keep_until: datetime | None = None
    ) -> Observation | None:
        await self._refresh_once()
        try:
            known = self._groups.get(group) or await self._find(group)
            if known is None:
                return None
            await known.stop(grace.total_seconds())
        except OSError as error:
            raise BackendUnavailable(f"group {group.name} cannot be stopped yet: {error}") from error
        seen = known.observe()
        if self._groups.pop(group, None) is not None:  # otherwise a concurrent stop has already removed it
            await known.close()
            await self._retire(known, keep_until)
        return seen

    async def _find(self, group: GroupRef) -> ProcessGroup | None:
        """Return the group, even if another service has launched it; None if there is none.

        If the group is not found, remove the folder that an interrupted launch may have left, and kill
        processes that still run in it.
        """
        folder = await asyncio.to_thread(self._folders.find, group)
        if folder is None:
            await asyncio.to_thread(self._folders.remove_unrecorded, group)
            # The folder may have been removed while the group ran and no service watched it.
            await asyncio.to_thread(sweeping.kill_all_below, self._folders.path_of(group))
            return None
        known = self._groups.get(group) or self._adopt(folder)
        await known.follow()
        return known

    async def sweep(self, now: datetime, forgotten: Collection[GroupRef] = ()) -> None:
        def clean_up() -> None:
            self._folders.sweep(now)
            for group in forgotten:
                self._folders.remove(group)
            keep = self._settings.keep_requirements.total_seconds()
            environments.sweep(self._environments, keep, self._settings.max_requirements)

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

    async def execute(self, group: GroupRef, rank: int, command: Sequence[str], most_bytes: int) -> bytes:
        """See RankAccess."""
        known = self._groups.get(group)
        pid = await known.pid_of(rank) if known is not None else None
        if pid is None:
            raise NotPossible(f"rank {rank} does not run")
        return await beside.execute(pid, command, most_bytes)

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
            extra_environment=self._extra_environment(job),
            inherited={**inherited, **{name: secret.get_secret_value() for name, secret in secrets}},
            cores=cores,
            runner=environments.runner_of(job.spec, self._environments),
            caches=environments.caches_of(job.spec, self._settings.program_caches),
            environments=self._settings.program_environments,
        )

    def _unpack_of(self, plan: ProcessPlan) -> Unpack | None:
        """Return the function that writes the files of the plan's uploaded program; None without a program.

        Raises TreeDamaged if this service keeps no uploaded files.
        """
        if plan.program is None:
            return None
        project, tree = plan.program
        if self._trees is None:
            raise TreeDamaged("this service keeps no uploaded files")
        return partial(self._trees.of(project).unpack, tree)

    async def _observe(self) -> Mapping[GroupRef, Observation]:
        await self._refresh()
        return {ref: group.observe() for ref, group in self._groups.items()}

    async def _retire(self, group: ProcessGroup, keep_until: datetime | None) -> None:
        try:
            await asyncio.to_thread(self._folders.retire, group.folder, keep_until)
        except FileNotFoundError:
            pass  # another service has already moved it
        except OSError as error:
            self._groups[group.folder.group] = group  # its folder is still among the live folders
            raise BackendUnavailable(f"folder {group.folder.path} cannot be moved: {error}") from error

    async def _create(self, plan: ProcessPlan) -> GroupFolder:
        taken = {port for group in self._groups.values() for port in group.folder.ports}
        ports = free_ports(
            plan.ports, self._settings.first_port, self._settings.last_port, taken | self._reserved_ports
        )
        self._reserved_ports.update(ports)  # no other group may get these ports before this group is known
        try:
            folder = await asyncio.to_thread(self._folders.create, plan.group, plan.roles, ports)
            return (self._groups.get(plan.group) or self._adopt(folder)).folder
        finally:
            self._reserved_ports.difference_update(ports)

    def _adopt(self, folder: GroupFolder) -> ProcessGroup:
        def publish(changed: ProcessGroup) -> None:
            self._changes.publish(changed.folder.group, changed.observe())

        group = ProcessGroup(folder, publish)
        self._groups[folder.group] = group
        return group

    async def _refresh_once(self) -> None:
        if not self._has_refreshed:
            await self._refresh()

    async def _refresh(self) -> None:
        """Adopt groups that other services have launched, and forget groups that they have stopped."""
        async with self._refreshing:
            known = dict(self._groups)  # groups launched or stopped during the comparison are left alone
            try:
                if not self._has_refreshed:
                    await asyncio.to_thread(self._log_foreign_groups)
                unknown, gone = await asyncio.to_thread(self._folders.compare, known)
            except OSError as error:
                raise BackendUnavailable(f"folder {self._root} cannot be read: {error}") from error
            for ref in gone:
                if self._groups.get(ref) is known[ref]:
                    await self._handle_missing(known[ref])
            for folder in unknown:
                if folder.group not in self._groups:
                    self._adopt(folder)
            # Known groups are followed, too: another service may have completed a launch that was interrupted
            # here.
            await asyncio.gather(*(self._follow(group) for group in list(self._groups.values())))
            self._has_refreshed = True

    def _log_foreign_groups(self) -> None:
        if foreign := self._folders.foreign():
            log.warning(
                "%s: ignoring %d groups of job stores other than %s: %s",
                *(self._root, len(foreign), self._store_id, ", ".join(foreign[:_MAX_NAMED])),
            )

    async def _handle_missing(self, group: ProcessGroup) -> None:
        """Handle a known group whose folder is missing: it was stopped, or its folder was removed while it
        ran.
        """
        if not group.is_running:
            await self._groups.pop(group.folder.group).close()
        elif not group.damage:
            group.damage = f"{group.folder.path} was removed"
            log.error(
                "%s was removed while the group's processes were running; stopping the group",
                group.folder.path,
            )
            self._changes.publish(group.folder.group, group.observe())

    async def _follow(self, group: ProcessGroup) -> None:
        """Follow the group. Log an error instead of raising it, so that other groups are followed, too."""
        try:
            await group.follow()
        except OSError as error:
            log.warning("group %s cannot be observed now: %s", group.folder.path, error)


def _prepare(folder: GroupFolder, plan: ProcessPlan, most_log: int, unpack: Unpack | None) -> None:
    for rank, restarts in enumerate(plan.restarts):
        place = folder.rank(rank)
        if place.processes() is None:
            environment = plan.environment_of(rank, folder.ports, place.path)
            argv = plan.argv(rank, folder.ports)
            place.prepare(argv, environment, plan.memory_limit_bytes, most_log, restarts, unpack)


def _check_virtual_environment(plan: ProcessPlan) -> None:
    folder = plan.environment.get("VIRTUAL_ENV")
    if folder is not None and not Path(folder, "bin").is_dir():
        raise LaunchFailed(no_virtual_environment(folder))


def _not_prepared(root: Path, error: OSError) -> NoRoom | LaunchFailed:
    """Return the error of a launch whose files below `root` could not be written."""
    if remedy := remedy_of(error):
        return NoRoom(f"{remedy} ({error})")
    return LaunchFailed(
        Diagnosis(
            category=Category.STORAGE_NOT_WRITABLE,
            summary=f"The folder of the job's files, {root}, is not writable.",
            resolution="Check the folder's permissions and its disk's free space, then submit the job again.",
            detail=str(error),
        )
    )
