"""Keeps capacity for jobs that continue in another size, from their stop until they run again."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from job_tracker.scheduling.capacity import FlavorCapacity, Slot, Use
from job_tracker.scheduling.leaving import awaited_of, leaving_of, stakes_of
from job_tracker.scheduling.lengths import planned_end, planned_length
from job_tracker.scheduling.model import Gang, GoingOn, Part, Resources, Running, Snapshot, Stake
from job_tracker.scheduling.quotas import QuotaTree
from job_tracker.scheduling.running import resized, trainers_of, used_by
from job_tracker.scheduling.shapes import fewest_trainers, total, with_trainers

STOPPING: Final = 60.0
"""The planned seconds from the decision to stop an attempt until the next attempt begins.

Even if the next attempt begins that late, it must not delay a promise.
"""


class Kept:
    """The capacity that one pass keeps for jobs that continue in another size. Other jobs cannot use it.

    A job with a claim is one of the jobs in Snapshot.claims, which start before all others.
    """

    def __init__(self, snapshot: Snapshot, soon_gone: Mapping[int, Running], now: float) -> None:
        """`soon_gone` has the running gangs, as the function `soon_gone` returns them.

        That is, gangs that are being stopped may have earlier planned ends than in the snapshot.
        """
        self._snapshot, self._soon_gone, self._now = snapshot, soon_gone, now
        self._awaited = awaited_of(snapshot, soon_gone)
        leaving = (soon_gone[run.gang.job_id] for run in (leaving_of(snapshot) if snapshot.claims else ()))
        self._leave_at = max((planned_end(run, now) for run in leaving), default=0.0)
        """The time at which all jobs that are being stopped are planned to be gone.

        0: no job is being stopped, or no waiting job has a claim.
        """
        self._waiting = dict(snapshot.going_on)
        """The stopped jobs that continue in another size, and that this pass has not considered yet."""
        self._claims = dict.fromkeys(snapshot.claims)
        """The jobs with claims that this pass has not considered yet."""

    def hold(self, flavors: Mapping[str, FlavorCapacity], tree: QuotaTree) -> None:
        """Reserve capacity for jobs that are being stopped and then continue in another size.

        From the planned end of the present attempt, the capacity of the new size is reserved. If the job
        grows, its additional capacity is also reserved from now until this end.
        """
        for job_id, stake in stakes_of(self._snapshot).leaving.items():
            run = self._soon_gone.get(job_id) if stake.goes_on else None
            if run is not None and (flavor := flavors.get(run.allocation.flavor)) is not None:
                self._hold(run, stake, flavor, tree)

    def _hold(self, run: Running, stake: Stake, flavor: FlavorCapacity, tree: QuotaTree) -> None:
        gone_at = planned_end(run, self._now)
        held = trainers_of(run)
        parts = with_trainers(run.gang.parts, stake.goes_on)
        length = max(0.0, _gone_by(stake, self._now) - gone_at) + self._length(run)
        slot = flavor.fits_at(parts, length, gone_at, resized(run, stake.goes_on).allocation.nodes)
        if slot is None:
            return  # there is less capacity than at the time of the decision
        flavor.take(parts, slot, length)
        if stake.goes_on > held:
            further = (replace(run.gang.parts[0], count=stake.goes_on - held),)
            if (slot := flavor.fits_at(further, gone_at - self._now, self._now)) is not None:
                flavor.take(further, slot, gone_at - self._now)
            tree.use(run.gang.queue, flavor.flavor.name, total(further))

    def _length(self, run: Running) -> float:
        """Return the planned run time of the next attempt of a running job that is being stopped.

        The run time is read from the snapshot, since `run` itself is planned to end at once.
        """
        return planned_length(self._snapshot.running[run.gang.job_id].gang.expected)

    def freed_by(self, run: Running) -> tuple[Resources, int]:
        """Return the resources that become free when a gang is stopped, and the number of gangs that end: 1.

        If the gang continues in another size, only resources beyond this size become free, and the number is
        0, because no gang ends.
        """
        trainers = self._snapshot.stakes[run.gang.job_id].goes_on
        if not trainers:
            return used_by(run), 1
        kept = total(with_trainers(run.gang.parts, min(trainers, trainers_of(run))))
        return {name: amount - kept.get(name, 0) for name, amount in used_by(run).items()}, 0

    def starts(self, gang: Gang) -> GoingOn | None:
        """Record that the pass considers the gang now, so that capacity is no longer kept for it.

        Return the size in which it continues; None if it does not continue in another size.
        """
        self._claims.pop(gang.job_id, None)
        return self._waiting.pop(gang.job_id, None)

    def uses_on(self, flavor: str) -> Iterator[tuple[str, Use]]:
        """Yield the queue and the future use of each stopped job that continues in another size.

        Only jobs that may use the flavor, and that this pass has not considered yet, are included.
        """
        for job_id, size in self._waiting.items():
            gang = self._snapshot.waiting.get(job_id)
            if gang is not None and size.flavor in ("", flavor):
                parts = with_trainers(gang.parts, size.trainers)
                yield gang.queue, (parts, self._now, planned_length(gang.expected))

    def in_order(self) -> list[int]:
        """Return the jobs with claims in the order in which the pass considers them.

        Jobs for which others are still being stopped come last.
        """
        return sorted(self._claims, key=lambda job_id: job_id in self._awaited)

    def fits_soon(self, gang: Gang, goes_on: GoingOn | None, flavor: FlavorCapacity) -> Slot | None:
        """Return the slot in which a stopped gang fits in its new size once all jobs that are being stopped
        have ended.

        None: the gang does not continue in another size, no job is being stopped, the gang fits now, or it
        does not fit even then.
        """
        if goes_on is None or not self._leave_at:
            return None
        parts, length = with_trainers(gang.parts, goes_on.trainers), planned_length(gang.expected)
        if flavor.fits_at(parts, length, self._now) is not None:
            return None
        return flavor.fits_at(parts, length, self._leave_at)

    def is_to_come(self, job_id: int) -> bool:
        """Return whether the job has a claim, and this pass has not considered it yet."""
        return job_id in self._claims

    def gone_at(self, job_id: int) -> float | None:
        """Return when the jobs that are being stopped for this job are planned to be gone; None if there
        are none.
        """
        awaited = self._awaited.get(job_id, ())
        return max((planned_end(run, self._now) for run in awaited), default=None)

    def claimed_on(self, flavor: str) -> Iterator[tuple[str, Use]]:
        """Yield the uses of `uses_on`, and then the uses of the other jobs with a claim, in their smallest
        size.
        """
        yield from self.uses_on(flavor)
        for job_id in self._claims:
            gang = self._snapshot.waiting.get(job_id)
            if gang is None or job_id in self._waiting or (gang.flavors and flavor not in gang.flavors):
                continue
            least = with_trainers(gang.parts, fewest_trainers(gang))
            yield gang.queue, (least, self.gone_at(job_id) or self._now, planned_length(gang.expected))

    def first_choice(
        self,
        names: Sequence[str],
        flavors: Mapping[str, FlavorCapacity],
        gang: Gang,
        goes_on: GoingOn | None,
    ) -> Sequence[str]:
        """Return flavors in the order in which a gang tries them.

        First come the flavors on which the gang continues, or on which jobs are being stopped for it. If
        there are none, the flavors that have room for the gang in addition to the kept capacity come first.
        """
        places = {run.allocation.flavor for run in self._awaited.get(gang.job_id, ())}
        if goes_on is not None and goes_on.flavor:
            places = {goes_on.flavor}
        if places:
            return sorted(names, key=lambda name: name not in places)
        parts = with_trainers(gang.parts, fewest_trainers(gang))
        if not self._waiting:
            return names
        return sorted(names, key=lambda name: not self._is_beside(name, flavors, parts))

    def _is_beside(self, name: str, flavors: Mapping[str, FlavorCapacity], parts: tuple[Part, ...]) -> bool:
        flavor = flavors.get(name)
        return flavor is not None and flavor.leaves(parts, 0.0, (use for _, use in self.uses_on(name)))


def _gone_by(stake: Stake, now: float) -> float:
    """Return the time at which the gang with this stake, which is being stopped, is expected to be gone.

    If the stop takes longer than planned, its planned duration is doubled until the end is later than now.
    """
    patience = STOPPING
    while stake.noticed_at + patience <= now:
        patience *= 2
    return stake.noticed_at + patience
