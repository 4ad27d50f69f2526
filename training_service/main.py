"""The composition root: settings in, a running service, an orderly stop."""

import asyncio
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

from job_tracker.errors import TrackerError
from job_tracker.jobs import Jobs
from job_tracker.leadership import Leadership, Tenure
from job_tracker.log_collector import LogCollector
from job_tracker.log_reader import LogReader
from job_tracker.logs.archive import LogArchive
from job_tracker.store.base import JobStore
from job_tracker.submission import Door
from job_tracker.tracker import Tracker, TrackerOptions
from training_service import logs as service_logs
from training_service._generated import training_service_pb2
from training_service._generated.training_service_pb2_grpc import add_TrainingServiceServicer_to_server
from training_service.api.interceptors import CallInterceptor
from training_service.api.servicer import TrainingServicer
from training_service.engines import Engine, make_engine
from training_service.metrics import Metrics, MetricsServer
from training_service.settings import Settings
from training_service.stores import open_store

log = logging.getLogger(__name__)

SERVICE_NAME = training_service_pb2.DESCRIPTOR.services_by_name["TrainingService"].full_name
_MOST_WAITING = 100_000
_EXIT_KILLED = 128 + signal.SIGTERM


class CannotServe(Exception):
    """The service cannot start, with the reason in one line."""


def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Raises CannotServe, or TrackerError if the store is refused."""
    service_logs.set_up(settings.logging)
    _allow_many_files()
    asyncio.run(serve(settings))


async def serve(settings: Settings) -> None:
    """Serve until told to stop, then let go of everything in order. Groups run on."""
    told_to_stop = _stop_signal()
    async with AsyncExitStack() as stack:
        store = await open_store(settings)
        stack.push_async_callback(store.close)
        engine = make_engine(settings)
        stack.push_async_callback(engine.backend.close)
        await engine.connect()
        metrics = Metrics()
        metrics.observe_requests(engine.requests)
        collector = LogCollector(store, engine.backend, log_archive(settings))
        stack.push_async_callback(collector.close)
        leadership = make_leadership(settings, store, engine, collector, metrics)
        stack.callback(_metrics_server(metrics, settings).close)
        servicer = TrainingServicer(make_jobs(settings, store, engine))
        leading = asyncio.create_task(leadership.run(), name="leadership")
        stack.push_async_callback(_end, leading)
        collecting = asyncio.create_task(collector.run(), name="logs")
        stack.push_async_callback(_end, collecting)

        server, serving = _make_server(settings, servicer, metrics)
        port = _bind(server, settings.server.address)
        await server.start()
        for name in ("", SERVICE_NAME):
            await serving.set(name, health_pb2.HealthCheckResponse.SERVING)
        log.info("serving at %s:%d, pid %d", settings.server.address.rpartition(":")[0], port, os.getpid())

        stopping = asyncio.create_task(told_to_stop.wait())
        await asyncio.wait([stopping, leading], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()

        log.info("stopping; running groups are left alone")
        await serving.enter_graceful_shutdown()
        servicer.close()
        # Another replica may lead while calls are still answered here.
        await asyncio.gather(_end(leading), server.stop(settings.server.shutdown_seconds))
    if not told_to_stop.is_set():
        raise CannotServe("the campaign for leadership ended, which it never should; see the log")
    log.info("stopped")


def make_jobs(settings: Settings, store: JobStore, engine: Engine) -> Jobs:
    """The operations behind the API."""
    door = Door(
        settings.algorithms,
        settings.all_datasets,
        capacity=settings.scheduling.capacity,
        models_uri=f"{settings.storage.root}/models",
        checkpoints_uri=f"{settings.storage.root}/checkpoints",
        pod_policy=settings.kubernetes.pod_policy if settings.backend == "kubernetes" else None,
        job_policy=settings.job_policy,
    )
    reader = LogReader(store, engine.backend, log_archive(settings))
    return Jobs(store, reader, door, max_queued=settings.scheduling.max_queued, rehearse=engine.rehearse)


def log_archive(settings: Settings) -> LogArchive:
    """Where the logs of ended groups are."""
    return LogArchive(f"{settings.storage.root}/logs")


def make_leadership(
    settings: Settings, store: JobStore, engine: Engine, logs: LogCollector, metrics: Metrics
) -> Leadership:
    """What makes this replica track whenever no other does."""
    options = tracker_options(settings)

    async def track(tenure: Tenure) -> None:
        await Tracker(store, engine.backend, logs, options, tenure).run()

    return Leadership(
        store,
        track,
        holder=f"{socket.gethostname()}/{os.getpid()}",
        lifetime=timedelta(seconds=settings.store.lease_seconds),
        on_change=metrics.observe_leading,
    )


def tracker_options(settings: Settings) -> TrackerOptions:
    """The tracker's share of the settings."""
    return TrackerOptions(
        capacity=settings.scheduling.capacity,
        stop_grace=settings.jobs.stop_grace,
        finish_grace=settings.jobs.finish_grace,
        keep_finished=settings.jobs.keep_finished,
        keep_failed_group=settings.jobs.keep_failed_group,
        keep_succeeded_group=settings.jobs.keep_succeeded_group,
    )


def _make_server(
    settings: Settings, servicer: TrainingServicer, metrics: Metrics
) -> tuple[grpc.aio.Server, health.aio.HealthServicer]:
    server = grpc.aio.server(
        interceptors=[CallInterceptor(metrics.observe_call)],
        options=[
            ("grpc.so_reuseport", 0),  # a second service on the port is an error, not a lottery
            ("grpc.max_receive_message_length", settings.server.max_message_bytes),
            # Beyond 1000 calls that wait, gRPC by default cancels some, which looks like the client's doing.
            ("grpc.server.max_pending_requests", _MOST_WAITING),
            ("grpc.server.max_pending_requests_hard_limit", 2 * _MOST_WAITING),
        ],
    )
    add_TrainingServiceServicer_to_server(servicer, server)
    serving = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(serving, server)
    names = (SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
    return server, serving


def _bind(server: grpc.aio.Server, address: str) -> int:
    try:
        return server.add_insecure_port(address)
    except RuntimeError as error:
        raise CannotServe(
            f"server.address: cannot listen at {address}; another program may have the port, or the host is "
            "not this machine's (choose another one with --address)"
        ) from error


def _metrics_server(metrics: Metrics, settings: Settings) -> MetricsServer:
    try:
        return MetricsServer(metrics, settings.metrics)
    except OSError as error:
        raise CannotServe(
            f"metrics.port: cannot listen at {settings.metrics.port}: {error.strerror}"
        ) from error


def _stop_signal() -> asyncio.Event:
    """Set by the first SIGTERM or SIGINT; the second ends the process at once."""
    told = asyncio.Event()

    def stop() -> None:
        if told.is_set():
            os._exit(_EXIT_KILLED)
        told.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    return told


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    result = (await asyncio.gather(task, return_exceptions=True))[0]
    if isinstance(result, Exception) and not isinstance(result, TrackerError):
        log.critical("the campaign for leadership failed", exc_info=result)


def _allow_many_files() -> None:
    """Every running rank takes a descriptor or two; the usual soft limit of 1024 is not meant for us."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
