"""The latest observations of groups, kept up to date by the watch of the backend."""

import asyncio
import logging
from collections.abc import Callable, Collection

from job_tracker.backends.base import Backend, Mark, Observation, Watch, snapshot_of
from job_tracker.domain.errors import TrackerError
from job_tracker.domain.group import GroupRef

log = logging.getLogger(__name__)


class Sightings:
    """The last observation of each group. Each call of `look` begins a new watch of all groups."""

    def __init__(
        self, backend: Backend, on_change: Callable[[int], None], on_end: Callable[[], None]
    ) -> None:
        """Call `on_change` with the id of a job whose group has changed.

        `on_end` is called when a watch ends or fails, but not when `look` replaces the watch.
        """
        self._backend = backend
        self._on_change = on_change
        self._on_end = on_end
        self._seen: dict[int, dict[GroupRef, Observation]] = {}
        """The last observations by job id, so that a job's groups are found quickly among many groups."""
        self._watching: asyncio.Task[None] | None = None

    def get(self, group: GroupRef) -> Observation | None:
        """Return the last observation of a group; None if there is no such group."""
        return self._seen.get(group.job_id, {}).get(group)

    def put(self, group: GroupRef, observation: Observation) -> None:
        """Store an observation of a group."""
        self._seen.setdefault(group.job_id, {})[group] = observation

    def forget(self, group: GroupRef) -> None:
        """Forget a group that no longer exists."""
        of_job = self._seen.get(group.job_id, {})
        of_job.pop(group, None)
        if not of_job:
            self._seen.pop(group.job_id, None)

    def of_job(self, job_id: int) -> Collection[GroupRef]:
        """Return the groups of a job."""
        return self._seen.get(job_id, {}).keys()

    async def look(self, tasks: asyncio.TaskGroup) -> set[int] | None:
        """Observe all groups, and from then on follow their changes in a new task of `tasks`.

        Return the ids of the jobs that have groups; None if the tracker is ending.
        """
        # A group that is launched during the look is not in `known`, so it is kept even if it is not found.
        known = {group for of_job in self._seen.values() for group in of_job}
        watch = self._backend.watch()
        found = await snapshot_of(watch)
        if self._watching is not None:
            self._watching.cancel()
        following = self._follow(watch)
        try:
            self._watching = tasks.create_task(following, name="watch of groups")
        except RuntimeError:  # the tracker ends, and this worker is about to be cancelled
            following.close()
            return None
        for group in known - set(found):
            self.forget(group)
        for group, observation in found.items():
            self.put(group, observation)
        return {group.job_id for group in found}

    async def _follow(self, watch: Watch) -> None:
        """Follow the changes after the snapshot of a watch, until the next look replaces the watch."""
        try:
            async for change in watch:
                if change is not Mark.END_OF_SNAPSHOT:
                    group, observation = change
                    self.put(group, observation)
                    self._on_change(group.job_id)
            log.warning("the watch of groups ended; all groups are listed again")
        except Exception as error:  # even an unexpected error must not end the tracker
            unforeseen = None if isinstance(error, TrackerError) else error
            log.warning(
                "the watch of groups failed; all groups are listed again: %s", error, exc_info=unforeseen
            )
        self._on_end()
