"""The composition root: builds the service from its settings, runs it, and stops it in order."""

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
from contextlib import AsyncExitStack
from datetime import timedelta

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from job_tracker.admission.admission import Admission
from job_tracker.admission.parameter_check import ParameterCheck
from job_tracker.admission.resolution import Resolver
from job_tracker.backends.registry import Opened
from job_tracker.common.clock import utc_now
from job_tracker.common.tasks import background, end
from job_tracker.domain import naming
from job_tracker.domain.errors import StoreLost
from job_tracker.domain.job import Job
from job_tracker.files.artifacts import ModelFiles
from job_tracker.jobs import Jobs
from job_tracker.logs.archive import LogArchive
from job_tracker.logs.collector import LogCollector
from job_tracker.logs.reader import LogReader
from job_tracker.reports import ReportBuffer, ReportEnvironment, ReportTokens
from job_tracker.scheduling.fifo import Fifo
from job_tracker.store.base import Store
from job_tracker.tracking.leadership import Leadership, Tenure
from job_tracker.tracking.tracker import Tracker, TrackerOptions
from training_service import log_setup as service_logs
from training_service._generated import training_reporter_pb2, training_service_pb2
from training_service._generated.training_reporter_pb2_grpc import add_TrainingReporterServicer_to_server
from training_service._generated.training_service_pb2_grpc import add_TrainingServiceServicer_to_server
from training_service.api.connections import call_options, connection_options
from training_service.api.interceptors import LARGEST_MESSAGE, CallInterceptor
from training_service.api.reporter import ReporterServicer
from training_service.api.servicer import TrainingServicer
from training_service.backend_opening import open_backend
from training_service.exposure import log_exposure
from training_service.freed_memory import give_back
from training_service.metrics import Metrics, MetricsServer
from training_service.metrics.outside import observed
from training_service.settings import Settings
from training_service.store_opening import open_store

log = logging.getLogger(__name__)

SERVICE_NAMES = tuple(
    service.full_name
    for file in (training_service_pb2, training_reporter_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
)
_CAMPAIGN = "the campaign for leadership"
_UMASK = 0o077
"""Only this user can read files of the service, and those of its jobs, which inherit the umask."""
_EXIT_KILLED = 128 + signal.SIGTERM


class CannotServe(Exception):
    """The service cannot start. The message is one line."""


def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Raises CannotServe, or TrackerError if the store is refused."""
    os.umask(_UMASK)
    service_logs.set_up(settings.logging)
    _allow_many_files()
    gc.freeze()  # keep imported objects out of garbage collection
    asyncio.run(serve(settings))


async def serve(settings: Settings) -> None:
    """Serve until a stop signal, then close everything in order. Groups continue to run."""
    stop_requested = _stop_signal()
    async with AsyncExitStack() as stack:
        metrics = Metrics()
        store = observed(await open_store(settings), Store, metrics.observe_outside("store"))
        stack.push_async_callback(store.close)
        metrics.observe_store(store, settings.scheduling.capacity)
        store_id = await store.store_id()
        tokens = ReportTokens(await store.secret())
        report_environment = ReportEnvironment(tokens, settings.reports.address)
        opened = await open_backend(settings, store_id, report_environment, metrics)
        stack.push_async_callback(opened.backend.close)
        metrics.observe_watch(opened.silent_seconds)
        reports = ReportBuffer(store, utc_now)
        stack.push_async_callback(end, background(reports.run(), "reports"))
        collector = LogCollector(store, opened.spool, log_archive(settings))
        stack.push_async_callback(collector.close)
        stack.push_async_callback(end, background(collector.run(), "collection of logs"))
        leadership = make_leadership(settings, store, opened, collector, reports, metrics)
        stack.callback(_metrics_server(metrics, settings).close)
        stack.push_async_callback(end, background(metrics.observe_loop(), "measurement of the event loop"))
        stack.push_async_callback(end, background(give_back(), "return of memory"))
        servicer = TrainingServicer(
            make_jobs(settings, store, store_id, opened, metrics),
            cancelled_as_failure=settings.server.cancelled_as_failure,
        )
        server, serving = _make_server(servicer, ReporterServicer(tokens, reports), metrics)
        port = _bind(server, settings.server.address)
        host = settings.server.address.rpartition(":")[0]
        if report_environment.address is None:
            report_environment.address = settings.plugin.address_for_ranks(host, port)
        leading = background(leadership.run(), _CAMPAIGN, expected=(StoreLost,))
        stack.push_async_callback(end, leading)
        await server.start()
        for name in ("", *SERVICE_NAMES):
            await serving.set(name, health_pb2.HealthCheckResponse.SERVING)
        log_exposure(settings)  # after the start: a failed start logs one line only
        log.info("serving at %s:%d, pid %d", settings.server.address.rpartition(":")[0], port, os.getpid())

        stopping = asyncio.create_task(stop_requested.wait())
        await asyncio.wait([stopping, leading], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()

        log.info("stopping; running groups are left alone")
        await serving.enter_graceful_shutdown()
        servicer.close()
        # Resign first: another replica may lead while this one still answers calls.
        await asyncio.gather(end(leading), server.stop(settings.server.shutdown_seconds))
    if not stop_requested.is_set():
        error = leading.exception()
        raise (
            error
            if isinstance(error, StoreLost)
            else CannotServe(f"{_CAMPAIGN} ended unexpectedly; see the log")
        )
    log.info("stopped")


def make_jobs(settings: Settings, store: Store, store_id: str, opened: Opened, metrics: Metrics) -> Jobs:
    """The operations behind the API."""
    resolver = make_resolver(settings)
    admission = Admission(
        settings.algorithms,
        settings.all_datasets,
        resolver,
        capacity=settings.scheduling.capacity,
        max_processes=settings.scheduling.most_processes,
        models_uri=f"{settings.storage.root}/models",
        checkpoints_uri=f"{settings.storage.root}/checkpoints",
        home=naming.home(store_id),
        defaults=settings.job_defaults,
    )
    return Jobs(
        store,
        LogReader(store, opened.backend, log_archive(settings)),
        admission,
        ModelFiles(settings.storage.root),
        max_queued=settings.scheduling.max_queued,
        parameter_check=ParameterCheck(settings.algorithms, settings.jobs.check_path),
        preflights=[opened.preflight] if opened.preflight else [],
        on_save=metrics.observe_job,
    )


def log_archive(settings: Settings) -> LogArchive:
    """The archive of the logs of ended groups."""
    root = settings.storage.root
    return LogArchive(f"{root}/logs", within=root)


def make_leadership(
    settings: Settings,
    store: Store,
    opened: Opened,
    logs: LogCollector,
    reports: ReportBuffer,
    metrics: Metrics,
) -> Leadership:
    """The leadership of this replica, which runs the tracker during its terms."""
    options, resolver = tracker_options(settings), make_resolver(settings)

    def saved(before: Job, after: Job) -> None:
        metrics.observe_job(before, after)
        opened.on_save(before, after)

    async def track(tenure: Tenure) -> None:
        models = ModelFiles(settings.storage.root)
        tracker = Tracker(
            store,
            opened.backend,
            logs,
            options,
            tenure,
            reports,
            Fifo(),
            on_save=saved,
            models=models,
            resolve=resolver.completed,
        )
        with metrics.observing(tracker):
            await tracker.run()

    return Leadership(
        store,
        track,
        holder=f"{socket.gethostname()}/{os.getpid()}",
        lifetime=timedelta(seconds=settings.store.lease_seconds),
        on_change=metrics.observe_leading,
    )


def tracker_options(settings: Settings) -> TrackerOptions:
    """The settings of the tracker."""
    return TrackerOptions(
        capacity=settings.scheduling.capacity,
        stop_grace=settings.jobs.stop_grace,
        finish_grace=settings.jobs.finish_grace,
        keep_finished=settings.jobs.keep_finished,
        keep_failed_group=settings.jobs.keep_failed_group,
        keep_succeeded_group=settings.jobs.keep_succeeded_group,
    )


def make_resolver(settings: Settings) -> Resolver:
    """The resolver of groups for the configured backend."""
    return Resolver(settings.algorithms, settings.backend, settings.plugin)


def _make_server(
    servicer: TrainingServicer, reporter: ReporterServicer, metrics: Metrics
) -> tuple[grpc.aio.Server, health.aio.HealthServicer]:
    server = grpc.aio.server(
        interceptors=[CallInterceptor(metrics.observe_call)],
        options=[
            *connection_options(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
            *call_options(LARGEST_MESSAGE),
            ("grpc.so_reuseport", 0),  # a second service on this port must fail to start
        ],
    )
    add_TrainingServiceServicer_to_server(servicer, server)
    add_TrainingReporterServicer_to_server(reporter, server)
    serving = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(serving, server)
    names = (*SERVICE_NAMES, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
    return server, serving


def _bind(server: grpc.aio.Server, address: str) -> int:
    try:
        return server.add_insecure_port(address)
    except RuntimeError as error:
        raise CannotServe(
            f"server.address: cannot listen at {address}: another program may use the port, or the host is "
            "not an address of this machine. Choose another one with --address"
        ) from error


def _metrics_server(metrics: Metrics, settings: Settings) -> MetricsServer:
    try:
        return MetricsServer(metrics.registry, settings.metrics)
    except OSError as error:
        raise CannotServe(
            f"metrics.port: cannot listen at {settings.metrics.port}: {error.strerror}. Choose another port"
        ) from error


def _stop_signal() -> asyncio.Event:
    """An event that the first SIGTERM or SIGINT sets. The second one ends the process at once."""
    stopping = asyncio.Event()

    def stop() -> None:
        if stopping.is_set():
            os._exit(_EXIT_KILLED)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    return stopping


def _allow_many_files() -> None:
    """Raise the soft limit of descriptors, which is often 1024: each running rank takes one or two."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
