"""Running gangs that may be stopped or made smaller, and the search for enough of these victims."""

from collections.abc import Sequence
from dataclasses import dataclass

from job_tracker.scheduling.model import Gang, Part, PreemptionReason, Resources, Running, Stake
from job_tracker.scheduling.running import instances_of, resized, trainers_of
from job_tracker.scheduling.shapes import total
from job_tracker.scheduling.standing import Standing


def cost(run: Running, stake: Stake, now: float) -> float:
    """Return the loss of a running job if it is stopped now, in instance-seconds."""
    return instances_of(run) * (max(0.0, now - stake.saved_at) + stake.startup)


@dataclass(frozen=True, slots=True)
class Victim:
    """A running job that may be stopped for a gang."""

    run: Running
    attempt: int
    cost: float
    """The loss if the job is stopped now, in instance-seconds."""
    why: PreemptionReason
    least: int
    """The smallest number of trainers with which the job can continue. 0: it cannot continue with fewer than
    it has."""

    @property
    def instances(self) -> int:
        """The number of instances that the job holds."""
        return instances_of(self.run)

    def shrunk(self, trainers: int) -> Running:
        """Return the running job with this smaller number of trainers."""
        return resized(self.run, trainers)


class Search:
    """The search for the victims of one gang.

    The victims are enough if, once they are stopped or made smaller, the gang fits on one of its flavors.
    """

    def __init__(
        self, standing: Standing, gang: Gang, flavors: Sequence[str], parts: tuple[Part, ...]
    ) -> None:
        self._standing = standing
        self._gang, self._flavors, self._parts = gang, flavors, parts
        self._needs: Resources = total(parts)
        self._gone: dict[int, tuple[Victim, int]] = {}
        """The victims so far, with the number of trainers that each keeps. 0: none."""

    def may_succeed(self, victims: Sequence[Victim]) -> bool:
        """Return whether all victims together are enough.

        If not, a search would be useless, and would cost more than this check.
        """
        for victim in victims:
            self._standing.count(victim.run, -1)
        is_enough = self._is_enough()
        for victim in victims:
            self._standing.count(victim.run)
        return is_enough

    def run(self, victims: Sequence[Victim], *, whole: bool = True) -> list[tuple[Victim, int]] | None:
        """Return enough of the victims, each with the number of trainers that it keeps; None if all of them
        together are not enough.

        The standing stays unchanged. Elastic gangs are made smaller before any gang is stopped completely.
        Without `whole`, no gang is stopped completely, so only elastic victims are chosen.
        """
        for victim in (each for each in victims if each.least):
            if self._is_enough():
                break
            self._set(victim, victim.least)
        for victim in victims if whole else ():
            if self._is_enough():
                break
            self._set(victim, 0)
        enough = self._is_enough()
        if enough:
            self._put_back()
        chosen = list(self._gone.values())
        for victim, _ in chosen:
            self._restore(victim)  # this also empties `_gone` for the next run
        return chosen if enough else None

    def _put_back(self) -> None:
        """Spare victims that are not needed after all, beginning with the last one.

        An elastic victim that is needed gets back as many trainers as possible.
        """
        for victim, kept in reversed(list(self._gone.values())):
            self._restore(victim)
            if not self._is_enough():
                self._set(victim, self._most(victim, kept), is_forced=True)

    def _most(self, victim: Victim, kept: int) -> int:
        """Return the largest number of trainers that a victim can keep if the gang has to fit; at least
        `kept`.
        """
        high = trainers_of(victim.run)
        low = max(victim.least, kept + 1) if victim.least else high
        while low < high:
            trainers = (low + high) // 2
            self._set(victim, trainers, is_forced=True)
            if self._is_enough():
                kept, low = trainers, trainers + 1
            else:
                high = trainers
        return kept

    def _is_enough(self) -> bool:
        return self._standing.first_fit(self._gang.queue, self._flavors, self._parts, self._needs) is not None

    def _set(self, victim: Victim, trainers: int, *, is_forced: bool = False) -> None:
        if not is_forced and not self._is_allowed(victim):
            return
        self._restore(victim)
        self._standing.count(victim.run, -1)
        if trainers:
            self._standing.count(victim.shrunk(trainers))
        self._gone[victim.run.gang.job_id] = (victim, trainers)

    def _restore(self, victim: Victim) -> None:
        _, trainers = self._gone.pop(victim.run.gang.job_id, (None, -1))
        if trainers > 0:
            self._standing.count(victim.shrunk(trainers), -1)
        if trainers >= 0:
            self._standing.count(victim.run)

    def _is_allowed(self, victim: Victim) -> bool:
        """Return whether the victim may still be stopped.

        If the victim is stopped because its queue borrows, the queue must still borrow.
        """
        return victim.why is not PreemptionReason.RECLAIM or self._standing.borrows(
            victim.run.gang.queue, self._gang.queue, victim.run.allocation.flavor, self._needs
        )
