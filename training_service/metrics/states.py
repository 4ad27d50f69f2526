"""How things stand at the moment of a scrape: the jobs in the store, and the tracker at its work.

A scrape runs in a thread of its own. It asks the store for not longer than a moment: without an answer
there are no numbers of jobs, rather than old ones, and `training_service_store_up` is 0.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from job_tracker.domain.errors import TrackerError
from job_tracker.domain.job import LIVE_STATES, JobState
from job_tracker.store.queue import QueueView, Tally
from job_tracker.tracking.tracker import Tracker

log = logging.getLogger(__name__)

_STORE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Look:
    tallies: Mapping[JobState, Tally]
    head_since: datetime | None


class StoredJobs(Collector):
    """What the store says of its jobs. Every replica on one store says the same."""

    def __init__(self, store: QueueView, capacity: int, loop: asyncio.AbstractEventLoop) -> None:
        """`loop` is the one that the store lives in."""
        self._store = store
        self._capacity = capacity
        self._loop = loop

    def collect(self) -> Iterator[Metric]:
        look = self._ask()
        yield GaugeMetricFamily(
            "training_service_store_up", "Whether the store answered this scrape", look is not None
        )
        yield GaugeMetricFamily(
            "training_service_instances_capacity", "Instances that may run at once", self._capacity
        )
        jobs = GaugeMetricFamily("training_service_jobs", "Jobs in each state", labels=["state"])
        in_use = GaugeMetricFamily(
            "training_service_instances_in_use", "Instances of the jobs that are launching or running"
        )
        age = GaugeMetricFamily(
            "training_service_queue_head_age_seconds",
            "Time since the job at the head of the queue was submitted; 0 while nothing is queued",
        )
        if look is not None:
            for state in JobState:
                jobs.add_metric([state], look.tallies[state].jobs)
            in_use.add_metric([], sum(look.tallies[state].instances for state in LIVE_STATES))
            now = datetime.now(UTC)
            age.add_metric([], max(0.0, (now - (look.head_since or now)).total_seconds()))
        yield from (jobs, in_use, age)

    def _ask(self) -> _Look | None:
        asking = self._look()
        try:
            answer = asyncio.run_coroutine_threadsafe(asking, self._loop)
        except RuntimeError:  # the service has just ended
            asking.close()
            return None
        try:
            return answer.result(_STORE_SECONDS)
        except (TrackerError, TimeoutError):
            return None
        except Exception:
            log.exception("the store cannot say how many jobs there are")
            return None
        finally:
            answer.cancel()

    async def _look(self) -> _Look:
        tallies, first = await asyncio.gather(self._store.tallies(), self._store.first_queued(1))
        return _Look(tallies, first[0].submitted_at if first else None)


class TrackerState(Collector):
    """How the tracker keeps up, in the replica that leads; the others have none, and show nothing."""

    tracker: Tracker | None = None

    def collect(self) -> Iterator[Metric]:
        depth = GaugeMetricFamily(
            "training_service_tracker_queue_depth", "Jobs and chores that wait for the tracker's workers"
        )
        oldest = GaugeMetricFamily(
            "training_service_tracker_oldest_seconds", "How long the first of them has waited"
        )
        longest = GaugeMetricFamily(
            "training_service_tracker_longest_work_seconds",
            "How long the slowest of the workers has been at its job or chore",
        )
        looked_at = GaugeMetricFamily(
            "training_service_tracker_last_look_timestamp_seconds",
            "When the tracker last looked at all jobs and groups, or else began to track",
        )
        retries = CounterMetricFamily(
            "training_service_tracker_retries", "How often work on a job or chore failed, since it leads"
        )
        if (tracker := self.tracker) is not None:
            health = tracker.queue_health
            depth.add_metric([], health.depth)
            oldest.add_metric([], health.oldest_seconds)
            longest.add_metric([], health.longest_seconds)
            looked_at.add_metric([], tracker.looked_at.timestamp())
            retries.add_metric([], health.retries)
        yield from (depth, oldest, longest, looked_at, retries)


class WatchState(Collector):
    """How old the news of pods is, once there has been any."""

    def __init__(self, silent_seconds: Callable[[], float | None]) -> None:
        self._silent_seconds = silent_seconds

    def collect(self) -> Iterator[Metric]:
        age = GaugeMetricFamily(
            "training_service_kubernetes_watch_age_seconds",
            "How long the watch of pods has told nothing; a bookmark comes about once a minute",
        )
        if (seconds := self._silent_seconds()) is not None:
            age.add_metric([], seconds)
        yield age
