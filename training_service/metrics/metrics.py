"""All metrics in one place. Other packages call this module, and do not depend on Prometheus."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from importlib.metadata import version

import grpc
from prometheus_client import CollectorRegistry, Gauge, Info, ProcessCollector, disable_created_metrics

from job_tracker.domain.job import Job
from job_tracker.store.queue import QueueView
from job_tracker.tracking.tracker import Tracker
from training_service.metrics.calls import CallMetrics
from training_service.metrics.certificates import CertificateState
from training_service.metrics.jobs import JobMetrics
from training_service.metrics.loop import LoopMetrics
from training_service.metrics.outside import OutsideObserver, Result
from training_service.metrics.states import StoredJobs, TrackerState, WatchState


class Metrics:
    """The metrics of the service, with their own registry."""

    def __init__(self) -> None:
        # prometheus_client would also export the time of creation of each counter. Prometheus does not use
        # these series.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._calls = CallMetrics(self.registry)
        self._jobs = JobMetrics(self.registry)
        self._loop = LoopMetrics(self.registry)
        self._tracker = TrackerState()
        self.registry.register(self._tracker)
        self._leader = Gauge(
            "training_service_leader",
            "1 in the replica that leads, 0 in the others",
            registry=self.registry,
        )
        ProcessCollector(registry=self.registry)
        Info("training_service_build", "The version of the service", registry=self.registry).info(
            {"version": version("training-service")}
        )

    def observe_call(self, method: str, code: grpc.StatusCode, seconds: float) -> None:
        """Count one call of the API, or one request to the dashboard.

        This method is a CallObserver, both for the API (interceptors.py) and for the dashboard (site.py).
        """
        self._calls.answered(seconds, method, code.name)

    def observe_refusal(self, limit: str) -> None:
        """Count one call that was refused by a limit; `limit` is the name of the limit."""
        self._calls.refused(limit)

    def observe_request(self, request: str, code: str, seconds: float) -> None:
        """Count one request to the API of the engine; see RequestObserver."""
        self._calls.requested(seconds, request, code)

    def observe_outside(self, kind: str) -> OutsideObserver:
        """Return an observer for calls to `kind`: "store" or "backend"."""

        def observe(operation: str, result: Result, seconds: float) -> None:
            self._calls.went_outside(seconds, kind, operation, result)

        return observe

    def observe_job(self, before: Job, after: Job) -> None:
        """Count a change of a job; see JobObserver."""
        self._jobs.saved(before, after)

    def observe_leading(self, leads: bool) -> None:
        """Set the metric that says whether this replica leads."""
        self._leader.set(leads)

    def observe_store(
        self, store: QueueView, capacity: Callable[[], int], projects: Callable[[], Collection[str]] = tuple
    ) -> None:
        """Export the numbers of jobs in the store at each scrape. Call this in the store's event loop.

        `capacity` returns the number of instances that may run at present. `projects` returns the names of
        the projects, for the label `project`.
        """
        self.registry.register(StoredJobs(store, capacity, projects, asyncio.get_running_loop()))

    def observe_watch(self, silent_seconds: Callable[[], float | None]) -> None:
        """Export how long the engine's watch has been silent; see Opened.silent_seconds."""
        self.registry.register(WatchState(silent_seconds))

    def observe_certificates(
        self, ends: Callable[[], Mapping[str, datetime]], problems: Callable[[], int]
    ) -> None:
        """Export the state of certificates; see CertificateState."""
        self.registry.register(CertificateState(ends, problems))

    def observe_catalog(self, problem: Callable[[], str]) -> None:
        """Export whether the configured catalog has a problem; see DeclaredCatalog.problem."""
        gauge = Gauge(
            "training_service_catalog_problems",
            "1 if the catalog of the configuration has changed and cannot be used; the previous one stays in "
            "use",
            registry=self.registry,
        )
        gauge.set_function(lambda: float(bool(problem())))

    async def observe_loop(self) -> None:
        """Measure the lag of the event loop until cancelled."""
        await self._loop.measure()

    @contextmanager
    def observing(self, tracker: Tracker) -> Iterator[None]:
        """Export the state of the tracker within this context."""
        self._tracker.tracker = tracker
        try:
            yield
        finally:
            self._tracker.tracker = None
