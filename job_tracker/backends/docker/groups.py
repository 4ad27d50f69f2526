"""Live groups, put together from the containers that the cache tells of."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from job_tracker.backends.base import Observation, RankObservation
from job_tracker.backends.docker.containers import Container
from job_tracker.backends.docker.endings import Ending
from job_tracker.backends.docker.status import observe_rank
from job_tracker.backends.shared.live_groups import LiveGroup, LiveGroups
from job_tracker.domain.group import MASTER_RANK, GroupRef, Phase

# A group that is found with containers missing may be one that is being launched beside us, or that a
# service was killed while launching. So many seconds its containers may take to appear.
_LAUNCH_SECONDS = 30.0


@dataclass(slots=True)
class ContainerGroup(LiveGroup):
    """See LiveGroup. `containers` are as last seen, also those that are gone."""

    containers: dict[int, Container] = field(default_factory=dict)
    ending: Ending | None = None
    _ended: dict[int, RankObservation] = field(default_factory=dict)

    @property
    def living(self) -> dict[int, Container]:
        """The containers that are there, ended or not."""
        return {rank: each for rank, each in self.containers.items() if rank not in self.gone}

    @property
    def running(self) -> dict[int, Container]:
        """Those of them that have not ended; one that never started does not count."""
        return {rank: each for rank, each in self.living.items() if each.has_started and not each.has_ended}

    @property
    def is_kept(self) -> bool:
        """Whether it was stopped, and all that is left is kept for people to look at."""
        if self.held or self.ending is None or self.ending.keep_until is None:
            return False
        return all(rank in self.ending.ended_before for rank in self.living)

    @property
    def is_waiting(self) -> bool:
        """Whether time alone may change what is seen of it."""
        return not self.launching and self.ending is None and len(self.containers) < self.instances

    def restarts_of(self, rank: int) -> int:
        """How often the rank was started anew."""
        known = self.containers.get(rank)
        return known.restarts if known else 0

    def take(self, rank: int, container: Container) -> bool:
        """Take in one container as it is now; whether that is news. Its life only goes forward."""
        known = self.containers.get(rank)
        if known is not None and known.restarts > container.restarts:
            return False  # word of an earlier one, late
        if known is not None and known.id == container.id:
            if rank in self.gone or known.progress > container.progress or known == container:
                return False
            if known.has_ended:
                return False  # it stays as it ended, and is only on its way out now
        else:
            self._ended.pop(rank, None)
        self.containers[rank] = container
        self.gone.discard(rank)
        return True

    def observe(self, now: float) -> Observation:
        """What every rank is doing. One that has ended stays as it ended, whatever becomes of it."""
        is_young = any(now - each.created_at < _LAUNCH_SECONDS for each in self.containers.values())
        ranks = []
        for rank in range(self.instances):
            seen = self._ended.get(rank) or observe_rank(
                rank,
                None if rank in self.gone else self.containers.get(rank),
                launching=rank not in self.containers and (self.launching or is_young),
                stopping=self.ending is not None,
                ended_before=self.ending is not None and rank in self.ending.ended_before,
            )
            if known := self.containers.get(rank):
                seen = replace(seen, status=replace(seen.status, restarts=known.restarts))
            if seen.status.phase.has_ended:
                self._ended[rank] = seen
            ranks.append(seen)
        master = self.containers.get(MASTER_RANK)
        return Observation(tuple(ranks), master.program if master else "")


class Groups(LiveGroups[ContainerGroup]):
    """See LiveGroups. Which of them are ending is written down apart from their containers."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        super().__init__(ContainerGroup)
        self._clock = clock
        self._endings: dict[GroupRef, Ending] = {}

    def drop(self, ref: GroupRef) -> None:
        """Forget a group that is gone."""
        super().drop(ref)
        self._endings.pop(ref, None)

    def put(self, container: Container) -> None:
        """Take in a container as it is now."""
        ref, rank, instances = container.group, container.rank, container.instances
        if ref is None or rank is None or instances is None or rank >= instances:
            return  # somebody else's, with our labels on it
        is_new = self.get(ref) is None
        group = self._known_or_new(ref, instances)
        if is_new:
            group.ending = self._endings.get(ref)
        if group.take(rank, container):
            self._touch(group)

    def remove(self, container: Container) -> None:
        """Take in that a container is gone."""
        group = self._groups.get(container.group) if container.group else None
        for rank, known in group.living.items() if group else ():
            if group is not None and known.id == container.id:
                group.gone.add(rank)
                self._touch(group)

    def end(self, endings: Iterable[Ending]) -> None:
        """Take in all endings that are written down, also of groups that are not known yet."""
        self._endings = {ending.group: ending for ending in endings}
        for ref, ending in self._endings.items():
            group = self._groups.get(ref)
            if group is not None and group.ending is None:
                self.observe(group)  # who has ended by now keeps how
                group.ending = ending
                self._touch(group)

    def observe(self, group: ContainerGroup) -> Observation:
        """What the group is doing; who watches is told if that is new."""
        seen = group.observe(self._clock())
        self._tell(group, seen)
        may_change = group.is_waiting and any(rank.status.phase is Phase.PENDING for rank in seen.ranks)
        self._look_again(group, self.observe, _LAUNCH_SECONDS / 10 if may_change else None)
        return seen

    def observe_all(self) -> Mapping[GroupRef, Observation]:
        """Every group of which there is, or was, a container, but for those that are kept."""
        return {group.ref: self.observe(group) for group in self if group.containers and not group.is_kept}

    def _touch(self, group: ContainerGroup) -> None:
        self.observe(group)
        self.touched.publish(group.ref, None)
        if group.ending is not None and not group.living and not group.held:
            self.drop(group.ref)  # an earlier service, or another one, has stopped it
