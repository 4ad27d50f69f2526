"""A backend that simulates groups in memory. The parameters of a job describe how its group behaves.

The backend is for tests, for trying out clients, and for load tests without processes. The contract tests of
Backend also check this backend. Unlike the other backends, it can launch a vanished group again. The groups
are in a `FakeWorld`. A world that the caller has created outlives the backend, as machines outlive the
service.

The simulated program has these parameters: RUN_SECONDS (a number or "forever"; default 0), EXIT_CODE (default
0), FAIL_RANK (only this rank exits with EXIT_CODE; default: every rank), and PRINT (a line that it prints).
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import ClassVar

from job_tracker.backends.base import Machines, Observation, RankObservation, Watch
from job_tracker.backends.registry import BackendPlugin, Opened, Surroundings
from job_tracker.backends.shared.watching import watched
from job_tracker.catalog import Algorithm
from job_tracker.common.broadcast import Broadcast
from job_tracker.common.config import Config
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.errors import LogsNotFound
from job_tracker.domain.eviction import Eviction
from job_tracker.domain.group import GroupRef, InstanceOptions, InstanceSpec, Phase, Place, RankStatus
from job_tracker.domain.job import Job
from job_tracker.domain.machine import Machine
from job_tracker.logs.records import BEGINNING, first_time, records_of
from job_tracker.logs.writing import RecordMaker


@dataclass(frozen=True, slots=True)
class FakePlan:
    """The plan of a group that runs for `seconds` or, if `seconds` is None, until it is stopped."""

    group: GroupRef
    seconds: float | None
    exit_codes: tuple[int, ...]
    text: str
    restarts: tuple[int, ...]
    """The wanted number of restarts of each rank."""


@dataclass(slots=True)
class FakeGroup:
    """A simulated group: the states of its ranks, and their logs."""

    plan: FakePlan
    ranks: list[RankObservation]
    printed: list[bytes]
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    timer: asyncio.TimerHandle | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeMachine:
    """A simulated machine, and the resources that other programs use on it."""

    flavor: str
    offers: Mapping[str, int]
    """The resources of the whole machine, in the units of Machine."""
    taken: Mapping[str, int] = field(default_factory=dict)
    """The resources that other programs use until they end."""
    stays: Mapping[str, int] = field(default_factory=dict)
    """The resources that other programs, such as daemons, always use."""
    is_open: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[Place, str] = field(default_factory=dict)

    def seen(self, name: str) -> Machine:
        """Return the machine as `Inventory.machines` yields it, with the name `name`."""
        most = {each: amount - self.stays.get(each, 0) for each, amount in self.offers.items()}
        return Machine(
            name=name,
            flavor=self.flavor,
            capacity={each: amount - self.taken.get(each, 0) for each, amount in most.items()},
            most=most,
            is_open=self.is_open,
            labels=self.labels,
            places=self.places,
        )


@dataclass(slots=True)
class FakeWorld:
    """The simulated machines, groups and spool."""

    live: dict[GroupRef, FakeGroup] = field(default_factory=dict)
    stopped: dict[GroupRef, FakeGroup] = field(default_factory=dict)
    kept: dict[GroupRef, datetime] = field(default_factory=dict)
    feed: Broadcast[GroupRef, Observation] = field(default_factory=Broadcast)
    launches: list[GroupRef] = field(default_factory=list)
    machines: dict[str, FakeMachine] = field(default_factory=dict)
    machine_feed: Broadcast[str, Machine | None] = field(default_factory=Broadcast)

    def put_machine(self, name: str, machine: "FakeMachine | None") -> None:
        """Add or change the machine of this name; None removes it."""
        if machine is None:
            self.machines.pop(name, None)
        else:
            self.machines[name] = machine
        self.machine_feed.publish(name, self.machine_of(name))

    def machine_of(self, name: str) -> Machine | None:
        """Return the machine as `Inventory.machines` yields it; None if it does not exist."""
        found = self.machines.get(name)
        return found.seen(name) if found is not None else None

    def end_rank(self, group: GroupRef, rank: int, exit_code: int, at: float | None = None) -> None:
        """End one rank with this exit code, unless it has ended already.

        `at` is the time of the rank's end in seconds since 1970; None: unknown.
        """
        found = self.live[group]
        if found.ranks[rank].status.phase.has_ended:
            return
        phase = Phase.FAILED if exit_code else Phase.SUCCEEDED
        diagnosis = _crashed(rank, exit_code) if exit_code else None
        restarts = found.ranks[rank].status.restarts
        found.ranks[rank] = replace(
            found.ranks[rank],
            status=RankStatus(rank, phase, exit_code, restarts=restarts),
            diagnosis=diagnosis,
            ended_at=at,
        )
        if all(each.status.phase.has_ended for each in found.ranks):
            found.ended.set()
        self.feed.publish(group, Observation(tuple(found.ranks)))

    def evict(self, group: GroupRef, rank: int, eviction: Eviction) -> None:
        """Give one rank the notice of an eviction. The rank runs on until the service stops its group."""
        found = self.live[group]
        found.ranks[rank] = replace(found.ranks[rank], eviction=eviction)
        self.feed.publish(group, Observation(tuple(found.ranks)))

    def vanish(self, group: GroupRef) -> None:
        """Remove the group, as if something other than the backend had removed it."""
        found = self.live.pop(group)
        found.ended.set()
        if found.timer:
            found.timer.cancel()

    async def waiting(self) -> Sequence[GroupRef]:
        return list(self.stopped)

    async def read(
        self, group: GroupRef, rank: int, *, after: bytes = BEGINNING, tail_lines: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        found = self.live.get(group) or self.stopped.get(group)
        if found is None or not 0 <= rank < len(found.ranks):
            raise LogsNotFound(f"rank {rank} of {group.name} has no log")
        lines = records_of(found.printed[rank])
        for line in lines if tail_lines is None else lines[max(0, len(lines) - tail_lines) :]:
            if first_time(line) > after:
                yield line

    async def drop(self, group: GroupRef) -> None:
        self.stopped.pop(group, None)

    def close(self) -> None:
        """End the simulation of every live group."""
        for group in list(self.live):
            self.vanish(group)


class FakeBackend:
    """See Backend."""

    def __init__(self, world: FakeWorld | None = None) -> None:
        self.world = world or FakeWorld()
        self._owns_world = world is None

    async def launch(self, job: Job) -> Observation:
        plan = _plan(job)
        if plan.group not in self.world.live:
            self.world.launches.append(plan.group)
            ranks = [RankObservation(RankStatus(r, Phase.RUNNING)) for r in range(len(plan.exit_codes))]
            group = self.world.live[plan.group] = FakeGroup(plan, ranks, [_printed(plan.text)] * len(ranks))
            if plan.seconds is not None:
                loop = asyncio.get_running_loop()
                group.timer = loop.call_later(plan.seconds, self._run_out, plan)
        found = self.world.live[plan.group]
        for rank, restarts in enumerate(plan.restarts):
            if found.ranks[rank].status.restarts < restarts:
                found.ranks[rank] = RankObservation(RankStatus(rank, Phase.RUNNING, restarts=restarts))
                found.printed[rank] += _printed(plan.text)
                self.world.feed.publish(plan.group, Observation(tuple(found.ranks)))
        return Observation(tuple(found.ranks))

    def watch(self) -> Watch:
        return watched(self._look, self.world.feed)

    async def stop(
        self, group: GroupRef, grace: timedelta, keep_until: datetime | None = None
    ) -> Observation | None:
        found = self.world.live.get(group)
        if found is None:
            return None
        if found.timer:
            found.timer.cancel()
        found.ranks = [
            rank
            if rank.status.phase.has_ended
            else RankObservation(RankStatus(rank.status.rank, Phase.STOPPED, 143))
            for rank in found.ranks
        ]
        found.ended.set()
        self.world.stopped[group] = self.world.live.pop(group)
        if keep_until is not None:
            self.world.kept[group] = keep_until
        return Observation(tuple(found.ranks))

    async def sweep(self, now: datetime, forgotten: Collection[GroupRef] = ()) -> None:
        for group, until in [*self.world.kept.items()]:
            if until <= now or group in forgotten:
                del self.world.kept[group]
        for group in forgotten:
            await self.world.drop(group)

    async def logs(
        self,
        group: GroupRef,
        rank: int,
        *,
        follow: bool = False,
        after: bytes = BEGINNING,
        tail_lines: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        async for line in self.world.read(group, rank, after=after, tail_lines=tail_lines):
            yield line
        if follow and (found := self.world.live.get(group)):
            await found.ended.wait()

    async def close(self) -> None:
        if self._owns_world:
            self.world.close()

    def machines(self) -> Machines:
        """See Inventory."""
        return watched(self._look_at_machines, self.world.machine_feed)

    async def _look_at_machines(self) -> Mapping[str, Machine]:
        return {name: machine.seen(name) for name, machine in self.world.machines.items()}

    async def _look(self) -> Mapping[GroupRef, Observation]:
        return {ref: Observation(tuple(group.ranks)) for ref, group in self.world.live.items()}

    def _run_out(self, plan: FakePlan) -> None:
        with suppress(KeyError):
            for rank, code in enumerate(plan.exit_codes):
                self.world.end_rank(plan.group, rank, code)


def _plan(job: Job) -> FakePlan:
    parameters = job.spec.environment
    seconds = parameters.get("RUN_SECONDS", "0")
    code, only = int(parameters.get("EXIT_CODE", "0")), parameters.get("FAIL_RANK")
    codes = (code if only in (None, str(rank)) else 0 for rank in range(job.spec.instances))
    return FakePlan(
        group=job.group,
        seconds=None if seconds == "forever" else float(seconds),
        exit_codes=tuple(codes),
        text=parameters.get("PRINT", "") + "\n",
        restarts=tuple(job.restarts_of(rank) for rank in range(job.spec.instances)),
    )


def _printed(text: str) -> bytes:
    return RecordMaker().records(text.encode())


def _crashed(rank: int, exit_code: int) -> Diagnosis:
    return Diagnosis(
        category=Category.CRASHED,
        summary=f"Rank {rank} exited with code {exit_code}.",
        resolution="Its parameters say so: this is a simulation.",
        rank=rank,
    )


class FakeSettings(Config):
    """The fake backend has no settings."""


class FakePlugin(BackendPlugin):
    """See BackendPlugin."""

    settings_model: ClassVar[type[Config]] = FakeSettings

    def __init__(self, settings: FakeSettings | None = None) -> None: ...

    def resolve(self, algorithm: Algorithm, role: str, sent: InstanceOptions) -> InstanceSpec:
        return InstanceSpec()

    def resolve_program(self, command: tuple[str, ...], sent: InstanceOptions) -> InstanceSpec | None:
        return InstanceSpec(command=command)

    async def open(self, surroundings: Surroundings) -> Opened:
        backend = FakeBackend()
        return Opened(backend=backend, spool=backend.world, inventory=backend)
