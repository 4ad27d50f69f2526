"""Live groups, assembled from the containers in the cache."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from job_tracker.backends.base import Observation, RankObservation
from job_tracker.backends.docker.containers import Container
from job_tracker.backends.docker.endings import Ending
from job_tracker.backends.docker.status import observe_rank
from job_tracker.backends.shared.live_groups import LiveGroup, LiveGroups
from job_tracker.domain.group import MASTER_RANK, GroupRef, Phase

# Seconds until a missing container counts as removed. Before that, another replica may be launching the
# group, or may have crashed during the launch.
_LAUNCH_SECONDS = 30.0


@dataclass(slots=True)
class ContainerGroup(LiveGroup):
    """See LiveGroup.

    `containers` has the last seen state of each rank's container, even of containers that are gone.
    """

    containers: dict[int, Container] = field(default_factory=dict)
    ending: Ending | None = None
    _ended: dict[int, RankObservation] = field(default_factory=dict)

    @property
    def living(self) -> dict[int, Container]:
        """The containers that exist, by rank, whether they have ended or not."""
        return {rank: each for rank, each in self.containers.items() if rank not in self.gone}

    @property
    def running(self) -> dict[int, Container]:
        """The containers that have started and not ended, by rank."""
        return {rank: each for rank, each in self.living.items() if each.has_started and not each.has_ended}

    @property
    def is_kept(self) -> bool:
        """Whether the group was stopped, and its containers are kept only for inspection."""
        if self.held or self.ending is None or self.ending.keep_until is None:
            return False
        return all(rank in self.ending.ended_before for rank in self.living)

    @property
    def is_waiting(self) -> bool:
        """Whether the group lacks containers that may still appear, or that may soon count as removed."""
        return not self.launching and self.ending is None and len(self.containers) < self.instances

    def restarts_of(self, rank: int) -> int:
        """Return how often the rank was restarted."""
        known = self.containers.get(rank)
        return known.restarts if known else 0

    def take(self, rank: int, container: Container) -> bool:
        """Record the state of the rank's container.

        Return False if nothing has changed, as after a late message.
        """
        known = self.containers.get(rank)
        if known is not None and known.restarts > container.restarts:
            return False  # a late message about an earlier container
        if known is not None and known.id == container.id:
            if rank in self.gone or known.progress > container.progress or known == container:
                return False
            if known.has_ended:
                return False  # the container is being removed, which does not change how it ended
        else:
            self._ended.pop(rank, None)
        self.containers[rank] = container
        self.gone.discard(rank)
        return True

    def forget(self, rank: int, container: Container) -> None:
        """Forget a container, as if it had never existed."""
        known = self.containers.get(rank)
        if known is not None and known.id == container.id:
            del self.containers[rank]
            self.gone.discard(rank)
            self._ended.pop(rank, None)

    def observe(self, now: float) -> Observation:
        """Return the state of every rank.

        The state of an ended rank stays the same until the rank is restarted, even if its container is
        removed.
        """
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
    """See LiveGroups.

    Endings are stored separately from groups, because they may be seen before the containers.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        super().__init__(ContainerGroup)
        self._clock = clock
        self._endings: dict[GroupRef, Ending] = {}

    def drop(self, ref: GroupRef) -> None:
        """See LiveGroups."""
        super().drop(ref)
        self._endings.pop(ref, None)

    def put(self, container: Container) -> None:
        """Record the state of a container."""
        ref, rank, instances = container.group, container.rank, container.instances
        if ref is None or rank is None or instances is None or rank >= instances:
            return  # a foreign container with our labels
        is_new = self.get(ref) is None
        group = self._known_or_new(ref, instances)
        if is_new:
            group.ending = self._endings.get(ref)
        if group.take(rank, container):
            self._touch(group)

    def remove(self, container: Container) -> None:
        """Record that a container is gone."""
        group = self._groups.get(container.group) if container.group else None
        for rank, known in group.living.items() if group else ():
            if group is not None and known.id == container.id:
                group.gone.add(rank)
                self._touch(group)

    def forget(self, container: Container) -> None:
        """Forget a container that never ran, so that a new one can take its place."""
        group = self._groups.get(container.group) if container.group else None
        if group is not None and (rank := container.rank) is not None:
            group.forget(rank, container)

    def end(self, endings: Iterable[Ending]) -> None:
        """Record the endings that exist now, including those of groups that are not known yet."""
        self._endings = {ending.group: ending for ending in endings}
        for ref, ending in self._endings.items():
            group = self._groups.get(ref)
            if group is not None and group.ending is None:
                self.observe(group)  # records the ends of ranks that have ended by now
                group.ending = ending
                self._touch(group)

    def observe(self, group: ContainerGroup) -> Observation:
        """See LiveGroups."""
        seen = group.observe(self._clock())
        self._publish(group, seen)
        may_change = group.is_waiting and any(rank.status.phase is Phase.PENDING for rank in seen.ranks)
        self._look_again(group, self.observe, _LAUNCH_SECONDS / 10 if may_change else None)
        return seen

    def observe_all(self) -> Mapping[GroupRef, Observation]:
        """Return the observations of all groups that have or had a container, except groups that are kept
        only for inspection.
        """
        return {group.ref: self.observe(group) for group in self if group.containers and not group.is_kept}

    def _touch(self, group: ContainerGroup) -> None:
        self.observe(group)
        self.touched.publish(group.ref, None)
        if group.ending is not None and not group.living and not group.held:
            self.drop(group.ref)  # another replica, or an earlier run of this one, has stopped it
