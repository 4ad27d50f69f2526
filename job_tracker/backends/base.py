"""The protocol of a backend, and the words it answers in, which are ours and no engine's."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from job_tracker.backends.shared.evidence import LOST_PEER
from job_tracker.backends.shared.log_ends import failure_in
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.group import MASTER_RANK, GroupRef, Phase, RankStatus
from job_tracker.domain.job import Job
from job_tracker.logs.records import BEGINNING

Plan = TypeVar("Plan")

_TOGETHER_SECONDS = 5.0
_NEVER = 1e12


@dataclass(frozen=True, slots=True)
class RankObservation:
    """What one rank was seen doing; with why, if it failed."""

    status: RankStatus
    diagnosis: Diagnosis | None = None
    ended_at: float | None = None
    """Seconds since 1970, if that is known."""
    last_lines: str = ""
    """The end of the log of a rank that ended with exit code 0, if that is known."""


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

        One that failed later often did because of it. Of those that failed at once, it is the lowest. A
        crash is no cause beside something else at about the same time: who loses a peer crashes too, and
        may be seen to do so before the peer. Nor is a crash that tells of a lost peer the cause, if another
        rank had left before with exit code 0: it left too early.
        """
        failed = sorted((rank for rank in self.ranks if rank.diagnosis), key=_ended_at)
        together = [rank for rank in failed if _ended_at(rank) - _ended_at(failed[0]) <= _TOGETHER_SECONDS]
        causes = [
            rank for rank in together if rank.diagnosis and rank.diagnosis.category is not Category.CRASHED
        ]
        cause = next(iter((*causes, *failed)), None)
        if cause is None or cause.diagnosis is None:
            return None
        return _left_early(self.ranks, cause, cause.diagnosis) or cause.diagnosis

    @property
    def failed_at(self) -> float | None:
        """When the first rank failed, in seconds since 1970, if that is known."""
        return min((rank.ended_at for rank in self.ranks if rank.diagnosis and rank.ended_at), default=None)

    @property
    def has_ended(self) -> bool:
        """Whether every rank is gone."""
        return all(rank.status.phase.has_ended for rank in self.ranks)

    @property
    def statuses(self) -> tuple[RankStatus, ...]:
        """The ranks alone, as a job keeps them."""
        return tuple(rank.status for rank in self.ranks)


def _left_early(
    ranks: Iterable[RankObservation], failed: RankObservation, why: Diagnosis
) -> Diagnosis | None:
    """Why the group failed if `failed` only lost a peer: the rank that left first, with exit code 0."""
    if why.category is not Category.CRASHED or failed.ended_at is None:
        return None
    if not LOST_PEER.search(failure_in(why.detail)):
        return None
    left = [
        rank
        for rank in ranks
        if rank.status.phase is Phase.SUCCEEDED and rank.ended_at and rank.ended_at <= failed.ended_at
    ]
    if not left:
        return None
    first = min(left, key=_ended_at)
    number, other = first.status.rank, failed.status.rank
    last_lines = f"\n\nRank {number} printed last:\n{first.last_lines}" if first.last_lines else ""
    return Diagnosis(
        category=Category.CRASHED,
        summary=f"Rank {number} left with exit code 0 before the others had finished, and rank {other} then "
        "failed without it.",
        resolution=f"See in the log of rank {number} why it ended so early, before it joined the group or in "
        f"the middle of training (its share of the data, an early exit); the log of rank {other} shows what "
        "it was waiting for.",
        detail=f"{why.summary}\n{why.detail}{last_lines}",
        retryable=why.retryable,
        rank=number,
    )


def _ended_at(rank: RankObservation) -> float:
    return rank.ended_at or _NEVER


class Backend(Protocol[Plan]):
    """Runs groups. One contract suite (tests/contract) says in detail what each method owes.

    A group lives from `launch` to `stop`, and what it printed until `drop_logs`, or `discard`. It does not
    depend on this service's process: after a restart, `observe` finds it again. What else is left of a
    stopped group (pods, folders) may be kept for people to look at; it is no group any more, and runs
    nothing.
    """

    def plan(self, job: Job) -> Plan:
        """Everything that `launch` will make for the job's attempt. Pure; LaunchFailed if impossible."""
        ...

    async def launch(self, plan: Plan) -> Observation:
        """Start the group, and say how it is.

        Repeating it is harmless: what is there already is adopted, and what may have run is never made
        again. So a group whose master is gone stays without, and LaunchFailed says so; of a job whose
        launch was complete (`was_launched`) no rank is made that is gone. A rank that has failed, and of
        which the plan wants a later start than that, is started anew, and prints into the same log.
        Raises LaunchFailed when trying again is pointless and BackendUnavailable when it is not. What was
        made until then is there in both cases, for the next `launch` or for `stop`: who calls writes down
        why it failed before anything is cleaned up.
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
        self,
        group: GroupRef,
        rank: int,
        *,
        follow: bool = False,
        after: bytes = BEGINNING,
        tail_lines: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """What the rank printed, as pieces of whole records (see job_tracker.logs), in the order of time.

        Those after a time, and no more than the last so many; `follow` goes on until the rank has ended.
        Works during and after the group's life. Raises LogsNotFound if there is nothing, and
        BackendUnavailable, also in the middle, if it cannot be read now.
        """
        ...

    async def stopped(self) -> Sequence[GroupRef]:
        """Stopped groups whose logs are on this machine, for whoever keeps them elsewhere."""
        ...

    async def drop_logs(self, group: GroupRef) -> None:
        """Forget what a stopped group printed, but for what is kept of it for people. Idempotent."""
        ...

    async def discard(self, group: GroupRef) -> None:
        """Forget a stopped group: its logs, what was kept of it, every trace. Idempotent."""
        ...

    async def close(self) -> None:
        """Let go of the outside. Groups run on."""
        ...
