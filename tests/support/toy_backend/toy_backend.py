"""A backend from another package: each rank is a child of the service, and ends with it.

It shows the duties of a backend. job_tracker and training_service contain no code for it.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, ClassVar

from pydantic import Field

from job_tracker.backends.base import Observation, RankObservation, Watch
from job_tracker.backends.registry import BackendPlugin, Opened, Surroundings
from job_tracker.backends.shared.watching import watched
from job_tracker.catalog import Algorithm
from job_tracker.common.broadcast import Broadcast
from job_tracker.common.config import Config
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.errors import LaunchFailed, LogsNotFound
from job_tracker.domain.group import GroupRef, InstanceOptions, InstanceSpec, Phase, RankStatus
from job_tracker.domain.job import Job
from job_tracker.frameworks import FRAMEWORKS, Address, GroupLayout
from job_tracker.frameworks.job_environment import DEFAULTS, ExtraEnvironment, job_environment
from job_tracker.logs.records import BEGINNING, first_time, records_of
from job_tracker.logs.writing import RecordMaker

_HOST, _FIRST_PORT = "127.0.0.1", 45_000


class ToySettings(Config):
    """The table [toy] of the configuration."""

    niceness: int = Field(default=0, ge=0, le=19, description="of the processes")


class ToyRecipe(Config):
    """The recipe by which an algorithm runs: the table algorithms.NAME.toy."""

    command: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)
    nproc_per_node: int = Field(default=1, ge=1, le=1)


@dataclass(slots=True)
class Rank:
    """A rank and its output."""

    status: RankStatus
    process: asyncio.subprocess.Process | None = None
    diagnosis: Diagnosis | None = None
    ended_at: float | None = None
    printed: list[bytes] = field(default_factory=list)
    maker: RecordMaker = field(default_factory=RecordMaker)
    grown: asyncio.Condition = field(default_factory=asyncio.Condition)
    following: asyncio.Task[None] | None = None

    @property
    def observation(self) -> RankObservation:
        """The current state, for the tracker."""
        return RankObservation(self.status, self.diagnosis, self.ended_at)


@dataclass(slots=True)
class Group:
    """A group that runs or has run."""

    ref: GroupRef
    ranks: list[Rank]
    is_stopping: bool = False
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def observation(self) -> Observation:
        """The current state, for the tracker."""
        return Observation(tuple(rank.observation for rank in self.ranks))


@dataclass(slots=True)
class World:
    """The groups of the toy backends that share this world."""

    live: dict[GroupRef, Group] = field(default_factory=dict)
    stopped: dict[GroupRef, Group] = field(default_factory=dict)
    kept: dict[GroupRef, datetime] = field(default_factory=dict)
    feed: Broadcast[GroupRef, Observation] = field(default_factory=Broadcast)
    launching: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def waiting(self) -> Sequence[GroupRef]:
        """Return stopped groups that have logs."""
        return list(self.stopped)

    def read(self, group: GroupRef, rank: int) -> AsyncGenerator[bytes, None]:
        """Yield the output of the rank."""
        return self.records(group, rank)

    async def drop(self, group: GroupRef) -> None:
        """Delete the output of the group."""
        self.stopped.pop(group, None)

    async def records(
        self,
        ref: GroupRef,
        rank: int,
        *,
        follow: bool = False,
        after: bytes = BEGINNING,
        tail_lines: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Yield the records of a rank."""
        group = self.live.get(ref) or self.stopped.get(ref)
        if group is None or not 0 <= rank < len(group.ranks):
            raise LogsNotFound(f"rank {rank} of {ref.name} has no log")
        found = group.ranks[rank]
        wanted = [each for each in found.printed if first_time(each) > after]
        read = len(found.printed)
        for record in wanted if tail_lines is None else wanted[max(0, len(wanted) - tail_lines) :]:
            yield record
        while follow:
            async with found.grown:
                while len(found.printed) == read and not _is_over(group, found):
                    await found.grown.wait()
            further, read = found.printed[read:], len(found.printed)
            for record in further:
                yield record
            if _is_over(group, found) and read == len(found.printed):
                return


class ToyBackend:
    """Starts ranks as child processes."""

    def __init__(self, world: World, niceness: int, extra_environment: ExtraEnvironment) -> None:
        self._world = world
        self._niceness = niceness
        self._extra = extra_environment

    async def launch(self, job: Job) -> Observation:
        async with self._world.launching:
            group = self._world.live.get(job.group)
            if group is None:
                ranks = [Rank(RankStatus(number, Phase.PENDING)) for number in range(job.spec.instances)]
                group = self._world.live[job.group] = Group(job.group, ranks)
            for rank in group.ranks:
                wanted = job.restarts_of(rank.status.rank)
                if rank.process is None or rank.status.restarts < wanted:
                    if rank.process is not None and rank.following is not None and not rank.following.done():
                        os.killpg(rank.process.pid, signal.SIGKILL)  # the rank's attempt has stalled
                        await rank.following
                    await self._start(job, group, rank, wanted)
            return group.observation

    async def _start(self, job: Job, group: Group, rank: Rank, restarts: int) -> None:
        number, spec = rank.status.rank, job.spec.group
        layout = GroupLayout(
            addresses=tuple(
                Address(_HOST, _FIRST_PORT + job.id % 1000 * 16 + each) for each in range(spec.size)
            ),
            roles=spec.role_of_ranks,
            elastic=spec.elastic,
        )
        framework = FRAMEWORKS[spec.framework]
        environment = {
            "PATH": os.environ["PATH"],
            **DEFAULTS,
            **spec.environment,
            **job_environment(job),
            **self._extra(job),
            **framework.environment(layout, number),
        }
        command = spec.instance(spec.role_of_ranks[number]).command
        try:
            rank.process = await asyncio.create_subprocess_exec(
                "nice", "-n", str(self._niceness), *command,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise LaunchFailed(
                Diagnosis(
                    category=Category.LAUNCH_FAILED,
                    summary=f"{command[0]} could not be started: {error.strerror}.",
                    resolution="Mend the command of the algorithm, and submit the job again.",
                )
            ) from error
        rank.status = RankStatus(number, Phase.RUNNING, restarts=restarts)
        rank.diagnosis = rank.ended_at = None
        rank.following = asyncio.create_task(self._follow(group, rank, rank.process))

    async def _follow(self, group: Group, rank: Rank, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None, "it was started with a pipe"
        while data := await process.stdout.read(1 << 16):
            await self._print(rank, rank.maker.records(data))
        await self._print(rank, rank.maker.rest())
        code = await process.wait()
        number, restarts = rank.status.rank, rank.status.restarts
        exit_code = code if code >= 0 else 128 - code
        rank.ended_at = time.time()
        if group.is_stopping:
            rank.status = RankStatus(number, Phase.STOPPED, exit_code, restarts=restarts)
        elif code == 0:
            rank.status = RankStatus(number, Phase.SUCCEEDED, 0, restarts=restarts)
        else:
            rank.status = RankStatus(number, Phase.FAILED, exit_code, restarts=restarts)
            rank.diagnosis = Diagnosis(
                category=Category.CRASHED,
                summary=f"Rank {number} exited with code {exit_code}.",
                resolution=f"See the log of rank {number}.",
                rank=number,
            )
        async with rank.grown:
            rank.grown.notify_all()
        self._world.feed.publish(group.ref, group.observation)

    async def _print(self, rank: Rank, records: bytes) -> None:
        async with rank.grown:
            rank.printed += records_of(records)
            rank.grown.notify_all()

    def watch(self) -> Watch:
        return watched(self._look, self._world.feed)

    async def _look(self) -> Mapping[GroupRef, Observation]:
        return {ref: group.observation for ref, group in self._world.live.items() if not group.is_stopping}

    async def stop(
        self, group: GroupRef, grace: timedelta, keep_until: datetime | None = None
    ) -> Observation | None:
        found = self._world.live.get(group)
        if found is None:
            return None
        if found.is_stopping:
            await found.gone.wait()
            return None
        found.is_stopping = True
        running = [rank for rank in found.ranks if rank.following and not rank.status.phase.has_ended]
        for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, timedelta(seconds=10))):
            for rank in running:
                if rank.process is not None and rank.process.returncode is None:
                    with suppress(ProcessLookupError):
                        os.killpg(rank.process.pid, number)
            waits = [rank.following for rank in running if rank.following and not rank.following.done()]
            if waits:
                await asyncio.wait(waits, timeout=patience.total_seconds())
        self._world.stopped[group] = self._world.live.pop(group)
        if keep_until is not None:
            self._world.kept[group] = keep_until
        found.gone.set()
        for rank in found.ranks:
            async with rank.grown:
                rank.grown.notify_all()
        return found.observation

    async def sweep(self, now: datetime, forgotten: Collection[GroupRef] = ()) -> None:
        for group, until in [*self._world.kept.items()]:
            if until <= now or group in forgotten:
                del self._world.kept[group]
        for group in forgotten:
            await self._world.drop(group)

    def logs(
        self,
        group: GroupRef,
        rank: int,
        *,
        follow: bool = False,
        after: bytes = BEGINNING,
        tail_lines: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        return self._world.records(group, rank, follow=follow, after=after, tail_lines=tail_lines)

    async def close(self) -> None:
        """Do nothing: groups run until this process ends."""


class ToyPlugin(BackendPlugin):
    """The entry point for the registry."""

    settings_model: ClassVar[type[Config]] = ToySettings
    recipe_model: ClassVar[type[Config] | None] = ToyRecipe
    role_model: ClassVar[type[Config] | None] = None

    def __init__(self, settings: ToySettings) -> None:
        self._settings = settings

    def resolve(self, algorithm: Algorithm, role: str, sent: InstanceOptions) -> InstanceSpec:
        """Return the command of the recipe."""
        recipe = algorithm.recipes["toy"]
        return InstanceSpec(command=algorithm.command_of(role, recipe.command), nproc_per_node=1)

    def address_for_ranks(self, host: str, port: int) -> str | None:
        """Return the address unchanged: ranks run on this machine."""
        return f"{host}:{port}"

    async def open(self, surroundings: Surroundings) -> Opened:
        """Open the backend, which has no engine to connect to."""
        world = World()
        backend = ToyBackend(world, self._settings.niceness, surroundings.extra_environment)
        return Opened(backend=backend, spool=world)


def _is_over(group: Group, rank: Rank) -> bool:
    return group.gone.is_set() or rank.status.phase.has_ended
