"""Chooses how many trainers an elastic gang starts with: as many as possible without delaying promises."""

from collections.abc import Callable, Iterable, Mapping

from job_tracker.scheduling.capacity import FlavorCapacity, Slot, Use
from job_tracker.scheduling.going_on import Kept
from job_tracker.scheduling.lengths import planned_length
from job_tracker.scheduling.model import Gang, GoingOn, Resources
from job_tracker.scheduling.quotas import QuotaTree
from job_tracker.scheduling.shapes import fewest_trainers, total, with_trainers


class Growth:
    """Chooses the numbers of trainers in one pass."""

    def __init__(
        self, flavors: Mapping[str, FlavorCapacity], tree: QuotaTree, kept: Kept, now: float
    ) -> None:
        self._flavors, self._tree, self._kept, self._now = flavors, tree, kept, now

    def most(
        self,
        gang: Gang,
        flavor: str,
        slot: Slot,
        goes_on: GoingOn | None,
        promised: Callable[[], Iterable[tuple[str, Use]]],
    ) -> tuple[int, Slot]:
        """Return the largest number of trainers with which a gang can start, and the slot for it.

        `slot` has room for the smallest number of trainers. `goes_on` is the new size of a stopped gang that
        continues at once. `promised` yields the promised uses of other gangs on the flavor, each with its
        queue.
        """
        low, asked = fewest_trainers(gang), gang.parts[0].count if gang.parts else 0
        if goes_on is not None:
            # The decision about this size has checked the promises, so they are not checked again.
            low, slot = self._most(gang, flavor, (low, min(goes_on.trainers, asked)), slot, lambda _: True)
        if low == asked:
            return low, slot
        length = planned_length(gang.expected)
        claimed = [(queue, total(parts)) for queue, (parts, *_) in self._kept.claimed_on(flavor)]
        others = [(queue, total(parts)) for queue, (parts, *_) in promised()]
        if claimed and not self._leaves_quotas(gang, flavor, low, claimed):
            return low, slot
        is_kept = self._leaves_quotas(gang, flavor, low, [*claimed, *others])

        def keeps_promises(trainers: int) -> bool:
            parts = with_trainers(gang.parts, trainers)
            uses = [*self._kept.claimed_on(flavor), *promised()]
            return self._flavors[flavor].leaves(
                parts, length, (use for _, use in uses)
            ) and self._leaves_quotas(gang, flavor, trainers, [*claimed, *others] if is_kept else claimed)

        return self._most(gang, flavor, (low, asked), slot, keeps_promises)

    def _most(
        self, gang: Gang, flavor: str, between: tuple[int, int], slot: Slot, allows: Callable[[int], bool]
    ) -> tuple[int, Slot]:
        """Return the largest number of trainers in the range `between` that fits and is allowed, and the slot
        for it.

        `slot` has room for the smallest number of trainers.
        """
        low, high = between
        length = planned_length(gang.expected)
        while low < high:
            trainers = (low + high + 1) // 2
            parts = with_trainers(gang.parts, trainers)
            more = None
            if self._tree.blocker(gang.queue, flavor, total(parts)) is None:
                more = self._flavors[flavor].fits_at(parts, length, self._now)
            if more is None or not allows(trainers):
                high = trainers - 1
            else:
                low, slot = trainers, more
        return low, slot

    def _leaves_quotas(
        self, gang: Gang, flavor: str, trainers: int, others: Iterable[tuple[str, Resources]]
    ) -> bool:
        """Return whether the quotas leave enough for `others` if the gang has this many trainers.

        `others` has the queue and the needs of each further use.
        """
        uses = [(gang.queue, total(with_trainers(gang.parts, trainers))), *others]
        counted: list[tuple[str, Resources]] = []
        for queue, needs in uses:
            if self._tree.blocker(queue, flavor, needs) is not None:
                break
            self._tree.use(queue, flavor, needs)
            counted.append((queue, needs))
        for queue, needs in counted:
            self._tree.use(queue, flavor, needs, -1)
        return len(counted) == len(uses)
