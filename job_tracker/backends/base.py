"""The protocol of a backend, and the words it answers in, which are ours and no engine's."""

from collections.abc import AsyncGenerator, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol

from job_tracker.backends.shared.evidence import LOST_PEER
from job_tracker.backends.shared.log_ends import failure_in
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.errors import BackendUnavailable
from job_tracker.domain.group import MASTER_RANK, GroupRef, Phase, RankStatus
from job_tracker.domain.job import Job
from job_tracker.logs.live import LiveLogs

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


class Mark(Enum):
    """What a watch yields besides observations."""

    END_OF_SNAPSHOT = "end of snapshot"


Watch = AsyncGenerator[tuple[GroupRef, Observation] | Mark, None]
"""See Backend.watch."""


async def snapshot_of(watch: Watch) -> dict[GroupRef, Observation]:
    """Read a watch up to its mark: all groups that are there. The watch then goes on with changes.

    Raises BackendUnavailable, also if the watch ends before its mark.
    """
    found: dict[GroupRef, Observation] = {}
    async for change in watch:
        if change is Mark.END_OF_SNAPSHOT:
            return found
        group, observation = change
        found[group] = observation
    raise BackendUnavailable("the watch of groups ended before its snapshot was complete")


class Backend(LiveLogs, Protocol):
    """Runs groups: `launch`, `watch`, `stop`, `sweep`, `close`, and the `logs` of LiveLogs.

    One contract suite (tests/contract) says in detail what each method owes.

    A group lives from `launch` to `stop`. It does not depend on this service's process: after a restart,
    `watch` finds it again. What it printed can be read until it is in storage (see Spool), or until the
    group is forgotten. What else is left of a stopped group (pods, folders) may be kept for people to look
    at; it is no group any more, and runs nothing.
    """

    async def launch(self, job: Job) -> Observation:
        """Start the group of the job's attempt, and say how it is.

        Repeating it is harmless: what is there already is adopted, and what may have run is never made
        again. So a group whose master is gone stays without, and LaunchFailed says so; of a job whose
        launch was complete (`was_launched`) no rank is made that is gone. A rank that has failed, and that
        the job wants started more often than it was, is started anew, and prints into the same log.
        Raises LaunchFailed when trying again is pointless and BackendUnavailable when it is not. What was
        made until then is there in both cases, for the next `launch` or for `stop`: the caller writes down
        why it failed before anything is cleaned up.
        """
        ...

    def watch(self) -> Watch:
        """Every group between launch and stop as it is now, END_OF_SNAPSHOT, then groups as they change.

        A group that is not in the snapshot is gone, unless it was launched while the snapshot was taken:
        changes do not say that a group is gone, so who follows them takes a new snapshot now and then. The
        mark always comes, also if there is no group. A snapshot takes O(1) calls to the outside, from the
        first `anext` on. Of the changes, values in between may be skipped. Raises BackendUnavailable if the
        snapshot cannot be taken now, or changes cannot be followed any more.
        """
        ...

    async def stop(
        self, group: GroupRef, grace: timedelta, keep_until: datetime | None = None
    ) -> Observation | None:
        """End every process of the group, politely for `grace`, and return when it is gone.

        Says how the ranks ended; None if the group is unknown, which is fine. Repeating it is too. With
        `keep_until`, what can stay of it without a process stays until a `sweep` after that moment.
        """
        ...

    async def sweep(self, now: datetime, forgotten: Collection[GroupRef] = ()) -> None:
        """Remove what was kept of stopped groups until `now` or before; their logs stay.

        Of those that are `forgotten` remove all, whatever its time: their logs, too, and every other trace.
        Repeating it is harmless, and it does not matter which service kept it. Raises BackendUnavailable if
        that cannot be done now.
        """
        ...

    async def close(self) -> None:
        """Let go of the outside. Groups run on."""
        ...
