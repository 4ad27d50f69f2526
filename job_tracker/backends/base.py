"""The protocol of a backend, and the words it answers in, which are ours and no engine's."""

import math
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from job_tracker.diagnosis import Diagnosis
from job_tracker.model import MASTER_RANK, GroupRef, Job, RankStatus

Plan = TypeVar("Plan")


@dataclass(frozen=True, slots=True)
class RankObservation:
    """What one rank was seen doing; with why, if it failed."""

    status: RankStatus
    diagnosis: Diagnosis | None = None
    ended_at: float | None = None
    """Seconds since 1970, if that is known."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What a group was seen doing: one entry a rank, in order.

    `program` is what the master runs, if that is known: an image with its digest, or a command.
    """

    ranks: tuple[RankObservation, ...]
    program: str = ""

    @property
    def master(self) -> RankObservation:
        """Rank 0, which stands for the progress of the group."""
        return self.ranks[MASTER_RANK]

    @property
    def first_failure(self) -> Diagnosis | None:
        """Why the rank that failed first did so; None while none has.

        One that failed later often did because of it. Of those that failed at once, it is the lowest.
        """
        failed = [rank for rank in self.ranks if rank.diagnosis]
        first = min(failed, key=lambda rank: rank.ended_at or math.inf, default=None)
        return first.diagnosis if first else None

    @property
    def has_ended(self) -> bool:
        """Whether every rank is gone."""
        return all(rank.status.phase.has_ended for rank in self.ranks)

    @property
    def statuses(self) -> tuple[RankStatus, ...]:
        """The ranks alone, as a job keeps them."""
        return tuple(rank.status for rank in self.ranks)


class Backend(Protocol[Plan]):
    """Runs groups. One contract suite (tests/contract) says in detail what each method owes.

    A group lives from `launch` to `stop`, and what it printed until `discard`. It does not depend on
    this service's process: after a restart, `observe` finds it again. What else is left of a stopped
    group (pods, folders) may be kept for people to look at; it is no group any more, and runs nothing.
    """

    def plan(self, job: Job) -> Plan:
        """Everything that `launch` will make for the job's attempt. Pure; LaunchFailed if impossible."""
        ...

    async def launch(self, plan: Plan) -> Observation:
        """Start the group, all of it or nothing, and say how it is.

        Repeating it is harmless: what is there already is adopted. Raises LaunchFailed when trying
        again is pointless and BackendUnavailable when it is not.
        """
        ...

    async def observe(self) -> Mapping[GroupRef, Observation]:
        """Every group between launch and stop, in O(1) calls to the outside."""
        ...

    def watch(self) -> AsyncIterator[tuple[GroupRef, Observation]]:
        """Groups as they change, from the first `anext` on; values in between may be skipped."""
        ...

    async def stop(
        self, group: GroupRef, grace: timedelta, keep_until: datetime | None = None
    ) -> Observation | None:
        """End every process of the group, politely for `grace`, and return when it is gone.

        Says how the ranks ended; None if the group is unknown, which is fine. Repeating it is too. With
        `keep_until`, what can stay of it without a process stays until a `sweep` after that moment.
        """
        ...

    async def sweep(self, now: datetime) -> None:
        """Remove what was kept of stopped groups until `now` or before; their logs stay.

        Whatever service kept it. Raises BackendUnavailable if that cannot be done now.
        """
        ...

    def logs(
        self, group: GroupRef, rank: int, *, follow: bool = False, tail_lines: int | None = None
    ) -> AsyncIterator[str]:
        """What the rank printed, in pieces of whole lines; `follow` goes on until the rank has ended.

        Works during and after the group's life. Raises LogsNotFound if there is nothing.
        """
        ...

    async def discard(self, group: GroupRef) -> None:
        """Forget a stopped group: its logs, what was kept of it, every trace. Idempotent."""
        ...

    async def close(self) -> None:
        """Let go of the outside. Groups run on."""
        ...
