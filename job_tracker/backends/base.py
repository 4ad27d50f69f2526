"""The protocol of a backend and its data types, which do not depend on an engine."""

import math
from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol

from job_tracker.backends.shared.evidence import LOST_PEER, TRAINING_IS_COMPLETE
from job_tracker.backends.shared.failures import only_lost_a_peer
from job_tracker.backends.shared.log_ends import failure_in
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.errors import BackendUnavailable
from job_tracker.domain.eviction import Eviction
from job_tracker.domain.group import MASTER_RANK, GroupRef, Phase, RankStatus
from job_tracker.domain.job import Job
from job_tracker.domain.machine import Machine
from job_tracker.logs.live import LiveLogs

_TOGETHER_SECONDS = 5.0
_NEVER = 1e12
_LOST = "Lost, and the others go on: "


@dataclass(frozen=True, slots=True)
class RankObservation:
    """The state of one rank, with a diagnosis if it failed."""

    status: RankStatus
    diagnosis: Diagnosis | None = None
    ended_at: float | None = None
    """The time at which the rank ended, in seconds since 1970; None if it is unknown."""
    last_lines: str = ""
    """The end of the log, if the rank ended with exit code 0; "" otherwise, or if the log is not known."""
    machine: str = field(default="", compare=False)
    """The machine on which the rank runs. Empty if it is unknown, or if the engine has only one."""
    eviction: Eviction | None = None
    """The notice that something other than the service stops the rank; None if there is no notice.

    The rank may still run. Because of the notice, the rank's end is not a failure.
    """


@dataclass(frozen=True, slots=True)
class Observation:
    """The state of a group: one entry for each rank, in order.

    `program` is what the master runs, if this is known: an image with its digest, or a command.
    """

    ranks: tuple[RankObservation, ...]
    program: str = ""

    @property
    def master(self) -> RankObservation:
        """The observation of rank 0, whose progress is the progress of the group."""
        return self.ranks[MASTER_RANK]

    def without_lost(self, most: int, known: Sequence[RankStatus], *, is_over: bool = False) -> "Observation":
        """Return the observation in which up to `most` failed ranks other than 0 count as lost, not as
        failed.

        `known` are the statuses before this observation. A rank that never ran does not count as lost. The
        attempt fails once rank 0, or more than `most` other ranks, have failed. The failure that ends the
        attempt is decisive. A rank that was lost at most 5 s earlier may have caused the decisive failure, so
        this rank counts as failed, too. Ranks that were lost before these 5 s still count as lost. If the
        attempt `is_over`, ranks that were already known as lost never count as failed, because the end of the
        attempt was decided after their loss.
        """
        if not most:
            return self
        lost_before = {rank.rank for rank in known if rank.note.startswith(_LOST)}
        ran = {rank.rank for rank in known if rank.phase is Phase.RUNNING}
        failed = sorted(
            (rank for rank in self.ranks[1:] if rank.diagnosis),
            key=lambda rank: (rank.status.rank not in lost_before, _ended_at(rank)),
        )
        if not failed:
            return self
        decisive = [*([self.master] if self.master.diagnosis else []), *failed[most : most + 1]]
        until = min(map(_ended_at, decisive)) - _TOGETHER_SECONDS if decisive else math.inf
        now_lost = {rank.status.rank for rank in failed if _ended_at(rank) < until} & ran
        causes = {rank.status.rank for rank in failed if not is_over and (rank.ended_at or 0.0) >= until}
        lost = {rank.status.rank for rank in failed[:most]} & (lost_before - causes | now_lost)
        return replace(
            self, ranks=tuple(_lost(rank) if rank.status.rank in lost else rank for rank in self.ranks)
        )

    def without_late(self, most: int) -> "Observation":
        """Return the observation of an elastic group, without failures that followed the end of the training.

        The training is complete once a rank has succeeded. A rank that starts later finds the rendezvous
        closed, so it counts as succeeded. If the master has succeeded, and at most `most` other ranks have
        failed, the failed ranks count as lost.
        """
        if all(rank.status.phase is not Phase.SUCCEEDED for rank in self.ranks):
            return self
        ranks = tuple(_late(rank) if _is_late(rank) else rank for rank in self.ranks)
        failed = sum(rank.diagnosis is not None for rank in ranks)
        if failed <= most and ranks[MASTER_RANK].status.phase is Phase.SUCCEEDED:
            ranks = tuple(_lost(rank) if rank.diagnosis else rank for rank in ranks)
        return replace(self, ranks=ranks)

    @property
    def first_failure(self) -> Diagnosis | None:
        """The diagnosis of the failure that probably caused the others; None if no rank has failed.

        Usually, this is the first failure, because later failures are often its consequences. If several
        ranks fail at the same time, the rank with the lowest number counts as the first.

        Losing a peer crashes a rank, and this crash may be observed before the failure of the peer. So if a
        failure that is not a crash follows within 5 s of the first failure, it counts as the cause of all
        crashes, even of those before it. If there are only crashes, a crash that does not name a lost peer
        counts as the cause of those that do. If the chosen crash names a lost peer, and another rank had
        ended before it with exit code 0, that other rank is the cause, because it left too early.
        """
        failed = sorted((rank for rank in self.ranks if rank.diagnosis), key=_ended_at)
        together = [rank for rank in failed if _ended_at(rank) - _ended_at(failed[0]) <= _TOGETHER_SECONDS]
        causes = [
            rank for rank in together if rank.diagnosis and rank.diagnosis.category is not Category.CRASHED
        ]
        own = [rank for rank in together if rank.diagnosis and not only_lost_a_peer(rank.diagnosis)]
        cause = next(iter((*causes, *own, *failed)), None)
        if cause is None or cause.diagnosis is None:
            return None
        return _left_early(self.ranks, cause, cause.diagnosis) or cause.diagnosis

    @property
    def failed_at(self) -> float | None:
        """The earliest known time at which a rank failed, in seconds since 1970; None if there is none."""
        return min((rank.ended_at for rank in self.ranks if rank.diagnosis and rank.ended_at), default=None)

    @property
    def eviction(self) -> Eviction | None:
        """The first notice of a stop that a rank got from something other than the service; None if no rank
        got one."""
        found = [rank.eviction for rank in self.ranks if rank.eviction]
        return min(found, key=lambda each: each.at, default=None)

    @property
    def has_ended(self) -> bool:
        """Whether every rank has ended."""
        return all(rank.status.phase.has_ended for rank in self.ranks)

    @property
    def statuses(self) -> tuple[RankStatus, ...]:
        """The statuses of the ranks, which a job stores."""
        return tuple(rank.status for rank in self.ranks)


def _left_early(
    ranks: Iterable[RankObservation], failed: RankObservation, why: Diagnosis
) -> Diagnosis | None:
    """Return the diagnosis that another rank left too early, with exit code 0; None if that is not the cause.

    `why` is the diagnosis of `failed`. Another rank can be the cause only if `failed` crashed because it lost
    a peer.
    """
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
        resolution=f"Find out in the log of rank {number} why it ended before it joined the group, or during "
        f"training (its share of the data, an early exit). The log of rank {other} shows what it was waiting "
        "for.",
        detail=f"{why.summary}\n{why.detail}{last_lines}",
        retryable=why.retryable,
        rank=number,
    )


def _lost(rank: RankObservation) -> RankObservation:
    """Return the observation of a failed rank without its diagnosis, so that the rank counts as lost.

    The note of the status has the summary of the diagnosis.
    """
    assert rank.diagnosis is not None, "it has failed"
    note = f"{_LOST}{rank.diagnosis.summary}"
    return replace(rank, diagnosis=None, status=replace(rank.status, note=note))


def _is_late(rank: RankObservation) -> bool:
    """Return whether the rank failed because it started after the end of the training."""
    why = rank.diagnosis
    return why is not None and TRAINING_IS_COMPLETE.search(failure_in(why.detail)) is not None


def _late(rank: RankObservation) -> RankObservation:
    """Return the observation of a late rank, changed to say that it succeeded. Its exit code stays."""
    note = "Started after the training was complete."
    status = replace(rank.status, phase=Phase.SUCCEEDED, note=note)
    return replace(rank, diagnosis=None, status=status)


def _ended_at(rank: RankObservation) -> float:
    return rank.ended_at or _NEVER


class Mark(Enum):
    """The items of a watch that are not observations."""

    END_OF_SNAPSHOT = "end of snapshot"


Watch = AsyncGenerator[tuple[GroupRef, Observation] | Mark, None]
"""See Backend.watch."""


async def snapshot_of(watch: Watch) -> dict[GroupRef, Observation]:
    """Read a watch up to END_OF_SNAPSHOT, and return all groups. The watch then continues with changes.

    Raises BackendUnavailable if the engine does not answer, or if the watch ends before END_OF_SNAPSHOT.
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

    The contract tests (tests/contract) define each method in detail.

    A group lives from `launch` to `stop`. It does not depend on the process of this service: `watch` finds it
    again after a restart. Its logs can be read until they are in storage (see Spool), or until the group is
    forgotten. Other objects of a stopped group (pods, folders) may be kept for inspection. They do not count
    as a group, and run no process.
    """

    async def launch(self, job: Job) -> Observation:
        """Start the group of the job's attempt, and return its state.

        A launch may be repeated: existing instances are adopted, and an instance that may have run is not
        created again, except for a restart. If the master may have run and is gone, the launch raises
        LaunchFailed. If the launch of the job was complete (`was_launched`), missing ranks are not created.

        A rank is restarted if the job wants more restarts than the rank has had. Its log is continued. If the
        rank still runs, it is killed first.

        Raises LaunchFailed if a retry is pointless, and BackendUnavailable if a retry may help. In both
        cases, the created instances stay for the next `launch` or for `stop`: the caller stores the diagnosis
        before they are removed.
        """
        ...

    def watch(self) -> Watch:
        """Yield every group that was launched and not stopped, then END_OF_SNAPSHOT, then groups as they
        change.

        A group that is not in the snapshot is gone, unless it was launched while the snapshot was taken. The
        later changes do not show that a group is gone, so callers must take a new snapshot from time to time.
        END_OF_SNAPSHOT also comes if there are no groups. The snapshot begins at the first `anext`. The
        number of calls to the engine for a snapshot does not depend on the number of running groups.
        Intermediate changes may be left out. Raises BackendUnavailable if the snapshot or later changes
        cannot be read.
        """
        ...

    async def stop(
        self, group: GroupRef, grace: timedelta, keep_until: datetime | None = None
    ) -> Observation | None:
        """End every process of the group, at the latest after `grace`. Return when all have ended.

        The result says how the ranks ended; it is None if the group is unknown. A stop may be repeated. With
        `keep_until`, objects without processes (folders, ended pods or containers) stay until a `sweep` after
        that time.
        """
        ...

    async def sweep(self, now: datetime, forgotten: Collection[GroupRef] = ()) -> None:
        """Remove the objects of stopped groups whose `keep_until` is `now` or earlier.

        The groups' logs stay. The objects and the logs of `forgotten` groups are removed at once. The call
        may be repeated, and also removes objects that other replicas have kept. Raises BackendUnavailable if
        the engine does not answer.
        """
        ...

    async def close(self) -> None:
        """Close all connections. Groups continue to run."""
        ...


Machines = AsyncGenerator[tuple[str, Machine | None] | Mark, None]
"""See Inventory.machines."""


class Inventory(Protocol):
    """The machines of a backend's engine. This part of a backend is optional."""

    def machines(self) -> Machines:
        """Yield all machines with their names, then END_OF_SNAPSHOT, then each machine that changes.

        None in place of a machine means that it is gone. Machines of flavors that are not in
        `Surroundings.followed` may be left out, and so may intermediate changes. Resources that the scheduler
        has given to attempts of this service count as free, because the scheduler itself subtracts them.
        Raises BackendUnavailable if the machines cannot be read.
        """
        ...


class RankAccess(Protocol):
    """Access to the ranks of live groups. This part of a backend is optional."""

    async def execute(self, group: GroupRef, rank: int, command: Sequence[str], most_bytes: int) -> bytes:
        """Run a command where a rank runs, and return the first `most_bytes` of the command's output.

        The service chooses the command. It runs as the rank's user, inside the rank's container or pod. The
        process backend runs the command beside the rank, with the pid of the rank's first process in the
        variable RANK_PID. Cancelling the call does not always end the command, so the command has to end by
        itself.

        Raises NotPossible with the reason if the rank does not run, if the engine refuses the command, or if
        the image lacks the command. Raises BackendUnavailable if the engine does not answer.
        """
        ...
