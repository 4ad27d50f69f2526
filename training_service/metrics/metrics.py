"""All measurements in one place: who measures tells them here, and never sees Prometheus."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version

import grpc
from prometheus_client import CollectorRegistry, Gauge, Info, ProcessCollector, disable_created_metrics

from job_tracker.domain.job import Job
from job_tracker.store.queue import QueueView
from job_tracker.tracking.tracker import Tracker
from training_service.metrics.calls import CallMetrics
from training_service.metrics.jobs import JobMetrics
from training_service.metrics.loop import LoopMetrics
from training_service.metrics.outside import OutsideObserver, Result
from training_service.metrics.states import StoredJobs, TrackerState, WatchState


class Metrics:
    """The service's measurements, in a registry of their own."""

    def __init__(self) -> None:
        # One more series for each that there is, and Prometheus reads none of them.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._calls = CallMetrics(self.registry)
        self._jobs = JobMetrics(self.registry)
        self._loop = LoopMetrics(self.registry)
        self._tracker = TrackerState()
        self.registry.register(self._tracker)
        self._leader = Gauge(
            "training_service_leader",
            "1 in the one replica that tracks, 0 in the others",
            registry=self.registry,
        )
        ProcessCollector(registry=self.registry)
        Info("training_service_build", "The version of the service", registry=self.registry).info(
            {"version": version("training-service")}
        )

    def observe_call(self, method: str, code: grpc.StatusCode, seconds: float) -> None:
        """Count one call of the API; see api.interceptors.CallObserver."""
        self._calls.answered(seconds, method, code.name)

    def observe_request(self, request: str, code: str, seconds: float) -> None:
        """Count one request to the engine's API; see RequestObserver."""
        self._calls.requested(seconds, request, code)

    def observe_outside(self, kind: str) -> OutsideObserver:
        """What counts calls to this kind of outside, as in "store"."""

        def observe(operation: str, result: Result, seconds: float) -> None:
            self._calls.went_outside(seconds, kind, operation, result)

        return observe

    def observe_job(self, before: Job, after: Job) -> None:
        """Count what became of a job; see JobObserver."""
        self._jobs.saved(before, after)

    def observe_leading(self, leads: bool) -> None:
        """Show whether this replica leads."""
        self._leader.set(leads)

    def observe_store(self, store: QueueView, capacity: int) -> None:
        """Show what the store says of its jobs at each scrape; to be called in the store's event loop."""
        self.registry.register(StoredJobs(store, capacity, asyncio.get_running_loop()))

    def observe_watch(self, silent_seconds: Callable[[], float | None]) -> None:
        """Show for how long the engine has told nothing; see Engine."""
        self.registry.register(WatchState(silent_seconds))

    async def observe_loop(self) -> None:
        """Measure the event loop until cancelled."""
        await self._loop.measure()

    @contextmanager
    def observing(self, tracker: Tracker) -> Iterator[None]:
        """Show how the tracker keeps up, for as long as it tracks."""
        self._tracker.tracker = tracker
        try:
            yield
        finally:
            self._tracker.tracker = None
