"""State at the time of a scrape: the jobs in the store, and the work of the tracker.

A scrape runs in its own thread and waits at most a second for the store. Without an answer, the numbers of
jobs are left out, and `training_service_store_up` is 0.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from job_tracker.domain.errors import TrackerError
from job_tracker.domain.job import LIVE_STATES, JobState
from job_tracker.scheduling.model import Reason
from job_tracker.store.queue import QueueView, Tally
from job_tracker.tracking.tracker import Tracker

log = logging.getLogger(__name__)

_STORE_SECONDS = 1.0
MOST_PROJECTS = 100
"""The largest number of projects that have a label of their own: the first ones by name."""
MOST_MACHINES = 20
OTHERS = "other projects"
"""The label of the jobs of all other projects together. No project can have this name."""


@dataclass(frozen=True, slots=True)
class _Look:
    tallies: Mapping[JobState, Tally]
    projects: Mapping[str, Mapping[JobState, int]]
    head_since: datetime | None


class StoredJobs(Collector):
    """The jobs in the store. All replicas of one store show the same numbers."""

    def __init__(
        self,
        store: QueueView,
        capacity: Callable[[], int],
        projects: Callable[[], Collection[str]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`projects` returns the names of the projects. `loop` is the event loop of the store."""
        self._store = store
        self._capacity = capacity
        self._projects = projects
        self._loop = loop

    def collect(self) -> Iterator[Metric]:
        look = self._ask()
        yield GaugeMetricFamily(
            "training_service_store_up", "Whether the store answered this scrape", look is not None
        )
        yield GaugeMetricFamily(
            "training_service_instances_capacity", "Instances that may run at the same time", self._capacity()
        )
        jobs = GaugeMetricFamily("training_service_jobs", "Jobs in each state", labels=["state"])
        by_project = GaugeMetricFamily(
            "training_service_project_jobs",
            f"Jobs in each state, by project; projects after the first {MOST_PROJECTS} by name share a label",
            labels=["project", "state"],
        )
        in_use = GaugeMetricFamily(
            "training_service_instances_in_use", "Instances of jobs that are launching or running"
        )
        age = GaugeMetricFamily(
            "training_service_queue_head_age_seconds",
            "Time since the oldest queued job was submitted; 0 while nothing is queued",
        )
        if look is not None:
            for state in JobState:
                jobs.add_metric([state], look.tallies[state].jobs)
                rest = look.tallies[state].jobs
                for project, counts in look.projects.items():
                    by_project.add_metric([project, state], counts[state])
                    rest -= counts[state]
                by_project.add_metric([OTHERS, state], max(0, rest))
            in_use.add_metric([], sum(look.tallies[state].instances for state in LIVE_STATES))
            now = datetime.now(UTC)
            age.add_metric([], max(0.0, (now - (look.head_since or now)).total_seconds()))
        yield from (jobs, by_project, in_use, age)

    def _ask(self) -> _Look | None:
        asking = self._look()
        try:
            answer = asyncio.run_coroutine_threadsafe(asking, self._loop)
        except RuntimeError:  # the service has ended
            asking.close()
            return None
        try:
            return answer.result(_STORE_SECONDS)
        except (TrackerError, TimeoutError):
            return None
        except Exception:
            log.exception("the jobs in the store cannot be counted")
            return None
        finally:
            answer.cancel()

    async def _look(self) -> _Look:
        names = sorted(self._projects())[:MOST_PROJECTS]
        tallies, projects, first = await asyncio.gather(
            self._store.tallies(), self._store.tallies_of(names), self._store.first_queued(1)
        )
        return _Look(tallies, projects, first[0].submitted_at if first else None)


class TrackerState(Collector):
    """The state of the tracker, in the replica that leads. Other replicas export nothing."""

    tracker: Tracker | None = None

    def collect(self) -> Iterator[Metric]:
        depth = GaugeMetricFamily(
            "training_service_tracker_queue_depth",
            "Jobs and periodic tasks that wait for a worker of the tracker",
        )
        oldest = GaugeMetricFamily(
            "training_service_tracker_oldest_seconds",
            "Longest time that a job or periodic task has waited for a worker of the tracker",
        )
        longest = GaugeMetricFamily(
            "training_service_tracker_longest_work_seconds",
            "Longest time that a worker has worked on its current job or periodic task",
        )
        looked_at = GaugeMetricFamily(
            "training_service_tracker_last_look_timestamp_seconds",
            "Time of the last check of all jobs and groups; before the first check, time of the start of the "
            "tracker",
        )
        retries = CounterMetricFamily(
            "training_service_tracker_retries",
            "Steps of jobs and periodic tasks that failed since the tracker started. Each is repeated",
        )
        waiting = GaugeMetricFamily(
            "training_service_waiting_jobs",
            "Queued jobs by the code of the reason why they wait",
            labels=["reason"],
        )
        slow = GaugeMetricFamily(
            "training_service_slow_processes",
            "Training processes whose own work on a step takes much longer than that of the median process",
        )
        machines = GaugeMetricFamily(
            "training_service_slow_machine_jobs",
            f"Jobs that a machine slows down; only for the {MOST_MACHINES} machines with the most such jobs",
            labels=["machine"],
        )
        if (tracker := self.tracker) is not None:
            slowest = Counter(tracker.progress.slow_machines)
            for machine, jobs in slowest.most_common(MOST_MACHINES):
                machines.add_metric([machine], jobs)
            for reason in Reason:
                waiting.add_metric([reason.value], tracker.waiting_by_reason.get(reason, 0))
            slow.add_metric([], tracker.progress.slow_processes)
            health = tracker.queue_health
            depth.add_metric([], health.depth)
            oldest.add_metric([], health.oldest_seconds)
            longest.add_metric([], health.longest_seconds)
            looked_at.add_metric([], tracker.looked_at.timestamp())
            retries.add_metric([], health.retries)
        yield from (depth, oldest, longest, looked_at, retries, waiting, slow, machines)


class WatchState(Collector):
    """Exports how long the watch of pods has been silent, once the watch has reported something."""

    def __init__(self, silent_seconds: Callable[[], float | None]) -> None:
        self._silent_seconds = silent_seconds

    def collect(self) -> Iterator[Metric]:
        age = GaugeMetricFamily(
            "training_service_kubernetes_watch_age_seconds",
            "Time since the last event of the watch of pods; a bookmark comes about once a minute",
        )
        if (seconds := self._silent_seconds()) is not None:
            age.add_metric([], seconds)
        yield age
