"""The real server on a loopback port, with a real store and the fake backend."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health, health_pb2_grpc

from job_tracker.access.audit import AuditTrail
from job_tracker.access.report_keys import ReportKeyAccess
from job_tracker.backends.fake import FakeBackend, FakeWorld
from job_tracker.backends.registry import Opened
from job_tracker.catalog import Dataset, Parameter
from job_tracker.common.clock import utc_now
from job_tracker.domain.job import JobState
from job_tracker.files.artifacts import ModelFiles
from job_tracker.logs.collector import LogCollector
from job_tracker.reports import ReportBuffer, ReportKeys, ReportTokens
from job_tracker.store.base import Store
from job_tracker.store.jobs import JobFilter
from job_tracker.store.queue import Tally
from job_tracker.store.sqlite import SqliteStore
from job_tracker.tracking.pool import FollowedPool
from job_tracker.tracking.tracker import Tracker
from tests.support.catalog import SETTINGS, algorithm_of
from tests.support.leadership import elected
from training_service import job_opening, main
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub
from training_service.access_opening import open_access
from training_service.api.access import AccessServicer
from training_service.api.catalog import CatalogServicer
from training_service.api.interceptors import CallInterceptor
from training_service.api.programs import ProgramServicer
from training_service.api.reporter import ReporterServicer
from training_service.api.servicer import TrainingServicer
from training_service.catalog_opening import ConfigurationFile, open_catalog
from training_service.metrics import Metrics
from training_service.program_opening import open_programs, open_trees
from training_service.serving import Listener, Servicers, make_server
from training_service.settings import Settings

Status = pb.GetTrainingStatusResponse
CAPACITY = 8

ALGORITHMS = {
    # Accepts any parameter. The fake backend uses the first four.
    "program": algorithm_of(
        free_parameters=True,
        environment={"MODE_OF_THE_SITE": "safe"},
        parameters={
            "RUN_SECONDS": Parameter(choices=("0", "forever")),
            "EXIT_CODE": Parameter(type="int", minimum=0, maximum=255),
            "FAIL_RANK": Parameter(type="int", minimum=0),
            "PRINT": Parameter(),
            "EPOCHS": Parameter(type="int", default="15", minimum=1, maximum=10_000),
            "LR": Parameter(type="float", default="4", exclusive_minimum=0, maximum=1000),
            "SEED": Parameter(type="int", minimum=0, maximum=2**31 - 1),
            "SHUFFLE": Parameter(type="bool"),
            "OPTIMISER": Parameter(choices=("sgd", "adam")),
        },
    ),
    # Accepts only the listed parameters.
    "strict": algorithm_of(max_instances=2, parameters={"EPOCHS": Parameter(type="int", default="1")}),
}


class AudibleMetrics(Metrics):
    """Metrics that also put each ended call into a queue."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: asyncio.Queue[tuple[str, grpc.StatusCode]] = asyncio.Queue()

    def observe_call(self, method: str, code: grpc.StatusCode, seconds: float) -> None:
        super().observe_call(method, code, seconds)
        self.ended.put_nowait((method, code))


class Service:
    """A running service, with access to its parts and a connected client."""

    def __init__(self, settings: Settings, store: Store, file: ConfigurationFile | None = None) -> None:
        self.settings = settings
        self.store = store
        self.file = file
        self.world = FakeWorld()
        self.metrics = AudibleMetrics()
        self._stack = AsyncExitStack()

    async def start(self, *, tracked: bool = True) -> None:
        """Serve on a free port. With `tracked` false, no tracker runs, so jobs keep their state."""
        backend = FakeBackend(self.world)
        self.trail = AuditTrail(self.store)
        self.access = await open_access(self.settings, self.store, self.trail.note)
        opened_catalog = await open_catalog(
            self.settings, self.store, self.access.projects, self.trail.note, self.file
        )
        self.catalog = opened_catalog.catalog
        self.pool = FollowedPool(self.catalog)
        programs = open_programs(self.settings, self.access.projects.limits_of, self.trail.note)
        jobs = job_opening.make_jobs(
            self.settings,
            self.store,
            await self.store.store_id(),
            Opened(backend=backend, spool=self.world),
            self.metrics,
            self.access.projects,
            self.trail.note,
            self.catalog,
            self.pool,
            programs,
        )
        self.jobs, self.declarations = jobs, opened_catalog.operations
        callers = self.access.callers
        callers.on_change(lambda: jobs.streams.recheck(callers.remembering()))
        self.servicer = TrainingServicer(jobs, cancelled_as_failure=self.settings.server.cancelled_as_failure)
        self.reports = ReportBuffer(self.store, utc_now)
        self.keys = await ReportKeys.open(self.store)
        self.tokens = ReportTokens(self.keys)
        limits = main.call_limits(self.settings)
        trees = open_trees(self.settings)
        reporter = ReporterServicer(self.tokens, self.reports, limits, self.trail.note, trees)
        interceptor = CallInterceptor(
            self.metrics.observe_call, self.access.authenticator, limits, self.metrics.observe_refusal
        )
        report_keys = ReportKeyAccess(self.store, self.keys, note=self.trail.note)
        self.access_servicer = AccessServicer(self.access.operations, report_keys)
        servicers = Servicers(
            self.servicer,
            self.access_servicer,
            reporter,
            ProgramServicer(programs),
            CatalogServicer(opened_catalog.operations),
        )
        self.server = make_server(servicers, interceptor, descriptors=1024)
        self.health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self.server)
        port = Listener("server.address", "127.0.0.1:0").bind(self.server)
        self.address = f"127.0.0.1:{port}"
        await self.server.start()
        self._stack.push_async_callback(self.store.close)
        self._stack.callback(self.world.close)
        self._stack.push_async_callback(jobs.mirror.close)
        self._stack.push_async_callback(self._end, asyncio.create_task(self.reports.run()))
        self._stack.push_async_callback(self._end, asyncio.create_task(callers.follow()))
        self._stack.push_async_callback(self._end, asyncio.create_task(self.catalog.follow()))
        if tracked:
            self._stack.push_async_callback(self._end, asyncio.create_task(self._track(backend)))
        self._stack.push_async_callback(self.server.stop, None)
        self._stack.callback(self.servicer.close)
        self.channel = await self._stack.enter_async_context(grpc.aio.insecure_channel(self.address))
        self.stub = TrainingServiceStub(self.channel)

    async def stop(self) -> None:
        """Stop the service, and release all that it uses. Repeated calls are allowed."""
        await self._stack.aclose()

    async def train(
        self, parameters: Mapping[str, str] | None = None, request_key: str = "", /, **changes: str
    ) -> int:
        """Submit a job that is valid except for the changes. Return its id."""
        request = pb.TrainRequest(metadata=metadata(parameters, **changes), request_key=request_key)
        return (await self.stub.Train(request)).job_id

    async def status(self, job_id: int) -> Status:
        """Return the current status of the job."""
        return await self.stub.GetTrainingStatus(pb.GetTrainingStatusRequest(job_id=job_id))

    async def seen(self, job_id: int, *statuses: pb.TrainingStatus.ValueType) -> Status:
        """Return the status of the job once it is in one of these states."""
        watch = self.stub.WatchTraining(pb.WatchTrainingRequest(job_id=job_id))
        async for status in watch:
            if status.status in statuses:
                watch.cancel()
                return status
        raise AssertionError(f"job {job_id} ended in another state")

    async def call_raw(self, method: str, data: bytes) -> bytes:
        """Call the method with these bytes as the message, and return the bytes of the answer."""
        call: Any = self.channel.unary_unary(f"/training.TrainingService/{method}")
        answer: bytes = await call(data)
        return answer

    async def first_raw(self, method: str, data: bytes) -> bytes:
        """Call the method with these bytes as the message, and return the bytes of the stream's first
        answer.
        """
        call: Any = self.channel.unary_stream(f"/training.TrainingService/{method}")
        answer: bytes = await anext(aiter(call(data)))
        return answer

    async def written(self) -> tuple[Mapping[JobState, Tally], int, set[Path]]:
        """Return everything that a request can change: counts, the newest job, files."""
        newest = (await self.store.list_jobs(JobFilter(), limit=1)).jobs
        data_dir = self.settings.storage.data_dir
        files = {path for path in data_dir.rglob("*") if not path.name.startswith("jobs.db")}
        return await self.store.tallies(), newest[0].id if newest else 0, files

    async def refuses(self, call: Awaitable[Any], code: grpc.StatusCode) -> str:
        """Check that the service refuses the call with this code and writes nothing. Return the message."""
        before = await self.written()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        details = caught.value.details() or ""
        assert caught.value.code() is code, details
        assert await self.written() == before
        assert "Traceback" not in details
        assert details.isprintable(), "the message is one line without control characters"
        return details

    async def _track(self, backend: FakeBackend) -> None:
        options = job_opening.tracker_options(self.settings)
        logs = LogCollector(self.store, self.world, job_opening.log_archive(self.settings))
        try:
            tenure, models = await elected(self.store), ModelFiles(self.settings.storage.root)
            tracker = Tracker(
                *(self.store, backend, logs, options, tenure, self.reports),
                pool=self.pool.now,
                models=models,
            )
            with self.catalog.calling(tracker.capacity_changed):
                await tracker.run()
        finally:
            await logs.close()

    @staticmethod
    async def _end(task: asyncio.Task[None]) -> None:
        task.cancel()
        await asyncio.wait([task])


def metadata(parameters: Mapping[str, str] | None = None, **changes: str) -> pb.TrainingJobMetadata:
    """Return metadata that is valid except for the changes."""
    fields = {"algorithm": "program", "dataset_id": "1", "train_data_version_hash": "v1"}
    return pb.TrainingJobMetadata(parameters=parameters, **{**fields, **changes})


Serve = Callable[..., Awaitable[Service]]


@pytest.fixture
async def serve(tmp_path: Path, storage: Path) -> AsyncIterator[Serve]:
    """A function that starts a service.

    All services of a test share a data folder, so only one may run at a time.
    """
    async with AsyncExitStack() as stack:

        async def start(
            store: type[SqliteStore] = SqliteStore, *, tracked: bool = True, **changes: Any
        ) -> Service:
            values: dict[str, Any] = {
                "backend": "fake",
                "catalog": {"replace_shipped": True},
                "storage": {"data_dir": tmp_path},
                "scheduling": {"capacity": CAPACITY},
                "algorithms": ALGORITHMS,
                "datasets": {"1": Dataset(uri=f"{storage}/versionedDatasets/{{dataset_id}}/{{version}}")},
            }
            settings = SETTINGS(**{**values, **changes})
            service = Service(settings, await store.open(settings.storage.data_dir / "jobs.db"))
            stack.push_async_callback(service.stop)
            await service.start(tracked=tracked)
            return service

        yield start
