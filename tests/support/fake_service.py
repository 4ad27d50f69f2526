"""A small training service in memory, served on a loopback port."""

# ruff: noqa: N802 - the proto names the servicer's methods

from __future__ import annotations

import asyncio
import socket
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

import grpc
from google.protobuf.message import Message

from tests.support.patience import PATIENCE
from training_service._generated import training_service_pb2 as pb
from training_service._generated import training_service_pb2_grpc as pb_grpc

T = TypeVar("T")
Status = pb.GetTrainingStatusResponse
ENDED = (pb.succeed, pb.failure, pb.cancelled)


class Failure(NamedTuple):
    code: grpc.StatusCode
    details: str
    after_effect: bool


class FakeService(pb_grpc.TrainingServiceServicer):
    """Implements the API over a dictionary of jobs, which the tests change."""

    def __init__(self) -> None:
        self.jobs: dict[int, Status] = {}
        self.printed: dict[tuple[int, int], list[str]] = defaultdict(list)
        self.series: dict[int, list[pb.MetricSeries]] = defaultdict(list)
        self.files: dict[int, dict[str, bytes]] = defaultdict(dict)
        self.queue_page = pb.GetQueueResponse()
        self.explanations: dict[int, pb.ExplainTrainingResponse] = {}
        self.queue = pb.GetQueueSnapshotResponse()
        self.changes: dict[int, bytes] = {}
        self.digests: dict[str, str] = {}
        self.requests: list[Any] = []
        self.projects: list[str] = []
        """The metadata x-project of each request."""
        self.failures: dict[str, list[Failure]] = defaultdict(list)
        self.logs_break_after: int | None = None
        self.knows_positions = True
        # It is called with each request, and for Train a second time after the effect of the call.
        self.on_request: Callable[[Any, bool], None] = lambda request, after_effect: None
        self.submitted: dict[int, pb.TrainRequest] = {}
        self.outcomes: dict[int, Status] = {}  # Fields of a job right after its submission.
        self._keys: dict[str, pb.TrainResponse] = {}
        self._versions: dict[int, int] = defaultdict(int)
        self._changed = asyncio.Condition()

    async def set_job(self, job_id: int, **fields: Any) -> None:
        """Change a job, or create it."""
        async with self._changed:
            self.jobs.setdefault(job_id, Status(job_id=job_id)).MergeFrom(Status(**fields))
            self._versions[job_id] += 1
            self._changed.notify_all()

    async def print(self, job_id: int, *chunks: str, rank: int = 0) -> None:
        """Add output of a rank."""
        async with self._changed:
            self.printed[job_id, rank] += chunks
            self._changed.notify_all()

    async def Train(self, request: pb.TrainRequest, context: Any) -> pb.TrainResponse:
        await self._receive(request, context)
        if request.request_key not in self._keys:
            job_id = len(self.jobs) + 1
            self._keys[request.request_key] = pb.TrainResponse(job_id=job_id)
            self.jobs[job_id] = Status(job_id=job_id)
            self.jobs[job_id].MergeFrom(self.outcomes.get(job_id, Status()))
            await self.set_job(job_id, metadata=request.metadata, tags=request.tags)
            self.submitted[job_id] = request
        await self._maybe_fail(request, context, after_effect=True)
        return self._keys[request.request_key]

    async def GetTrainingStatus(self, request: pb.GetTrainingStatusRequest, context: Any) -> Status:
        await self._receive(request, context)
        return await self._job(request.job_id, context)

    async def ListTrainingJobs(
        self, request: pb.ListTrainingJobsRequest, context: Any
    ) -> pb.ListTrainingJobsResponse:
        await self._receive(request, context)
        found = [
            job
            for _, job in sorted(self.jobs.items(), reverse=True)
            if (not request.statuses or job.status in request.statuses)
            and job.metadata.name.startswith(request.name_prefix)
            and request.algorithm in ("", job.metadata.algorithm)
            and request.submitted_by in ("", job.submitted_by)
            and set(request.tags) <= set(job.tags)
            and (not request.before_job or job.job_id < request.before_job)
        ]
        start, size = int(request.page_token or 0), request.page_size or 50
        more = start + size < len(found)
        return pb.ListTrainingJobsResponse(
            jobs=found[start : start + size], next_page_token=str(start + size) if more else ""
        )

    async def CancelTraining(self, request: pb.CancelTrainingRequest, context: Any) -> Status:
        await self._receive(request, context)
        job = await self._job(request.job_id, context)
        if job.status not in ENDED:
            await self.set_job(request.job_id, status=pb.cancelled)
        return job

    async def AnnotateTraining(self, request: pb.AnnotateTrainingRequest, context: Any) -> Status:
        await self._receive(request, context)
        job = await self._job(request.job_id, context)
        tags = {*job.tags, *request.add_tags} - {*request.remove_tags}
        del job.tags[:]
        await self.set_job(request.job_id, tags=sorted(tags))
        if request.HasField("note"):
            job.note = request.note
        return job

    async def DeleteTraining(
        self, request: pb.DeleteTrainingRequest, context: Any
    ) -> pb.DeleteTrainingResponse:
        await self._receive(request, context)
        if (await self._job(request.job_id, context)).status not in ENDED:
            details = f"job {request.job_id} is running"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, details)
        del self.jobs[request.job_id]
        return pb.DeleteTrainingResponse()

    async def WatchTraining(self, request: pb.WatchTrainingRequest, context: Any) -> AsyncIterator[Status]:
        await self._receive(request, context)
        job, seen = await self._job(request.job_id, context), 0
        while True:
            async with self._changed:
                while self._versions[job.job_id] == seen:
                    await self._changed.wait()
                seen = self._versions[job.job_id]
                status = Status()
                status.CopyFrom(job)
            yield status
            if status.status in ENDED:
                return

    async def GetTrainingLogs(
        self, request: pb.GetTrainingLogsRequest, context: Any
    ) -> AsyncIterator[pb.GetTrainingLogsResponse]:
        await self._receive(request, context)
        job, chunks = await self._job(request.job_id, context), self.printed[request.job_id, request.rank]
        sent = max(0, len(chunks) - request.tail_lines) if request.HasField("tail_lines") else 0
        sent = int(request.position or sent)
        while True:
            async with self._changed:
                while request.follow and sent == len(chunks) and job.status not in ENDED:
                    await self._changed.wait()
                fresh, sent = chunks[sent:], len(chunks)
            for number, text in enumerate(fresh):
                if number == self.logs_break_after:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "going away")
                position = str(sent - len(fresh) + number + 1) if self.knows_positions else ""
                yield pb.GetTrainingLogsResponse(text=text, rank=request.rank, attempt=1, position=position)
            if not request.follow or (job.status in ENDED and sent == len(chunks)):
                return

    async def GetTrainingMetrics(self, request: Any, context: Any) -> AsyncIterator[pb.MetricSeries]:
        await self._receive(request, context)
        await self._job(request.job_id, context)
        for series in self.series[request.job_id]:
            if not request.names or series.name in request.names:
                yield series

    async def GetTrainingArtifacts(self, request: Any, context: Any) -> pb.GetTrainingArtifactsResponse:
        await self._receive(request, context)
        await self._job(request.job_id, context)
        made = [
            pb.Artifact(
                name=name,
                uri=f"s3://models/{name}",
                size=len(content),
                sha256=self.digests.get(name, ""),
                fetchable=True,
            )
            for name, content in self.files[request.job_id].items()
        ]
        origin = pb.Provenance(request=self.submitted.get(request.job_id))
        return pb.GetTrainingArtifactsResponse(job_id=request.job_id, artifacts=made, provenance=origin)

    async def GetQueue(self, request: pb.GetQueueRequest, context: Any) -> pb.GetQueueResponse:
        await self._receive(request, context)
        begin = int(request.page_token or 0)
        jobs = [job for job in self.queue_page.jobs if request.queue in ("", job.queue)]
        end = begin + (request.page_size or 100)
        return pb.GetQueueResponse(
            jobs=jobs[begin:end],
            queues=() if begin else self.queue_page.queues,
            next_page_token=str(end) if end < len(jobs) else "",
        )

    async def ExplainTraining(self, request: Any, context: Any) -> pb.ExplainTrainingResponse:
        await self._receive(request, context)
        await self._job(request.job_id, context)
        return self.explanations.get(request.job_id, pb.ExplainTrainingResponse(job_id=request.job_id))

    async def GetQueueSnapshot(self, request: Any, context: Any) -> pb.GetQueueSnapshotResponse:
        await self._receive(request, context)
        return self.queue

    async def FetchTrainingArtifact(
        self, request: Any, context: Any
    ) -> AsyncIterator[pb.FetchTrainingArtifactResponse]:
        await self._receive(request, context)
        content = self.files[request.job_id].get(request.name)
        if content is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"name: {request.name!r} is not a file")
            return
        for start in range(0, len(content), 4):
            yield pb.FetchTrainingArtifactResponse(content=content[start : start + 4])

    async def GetTrainingChanges(
        self, request: Any, context: Any
    ) -> AsyncIterator[pb.GetTrainingChangesResponse]:
        await self._receive(request, context)
        content = self.changes.get(request.job_id)
        if content is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "job_id: no changes")
            return
        for start in range(0, len(content), 4):
            yield pb.GetTrainingChangesResponse(content=content[start : start + 4])

    async def _receive(self, request: Message, context: Any) -> None:
        self.requests.append(request)
        self.projects.append(dict(context.invocation_metadata()).get("x-project", ""))
        await self._maybe_fail(request, context, after_effect=False)

    async def _maybe_fail(self, request: Message, context: Any, *, after_effect: bool) -> None:
        self.on_request(request, after_effect)
        failures = self.failures[type(request).__name__]
        if failures and failures[0].after_effect == after_effect:
            failure = failures.pop(0)
            await context.abort(failure.code, failure.details)

    async def _job(self, job_id: int, context: Any) -> Status:
        if job_id not in self.jobs:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"Job {job_id} doesn't exist")
        return self.jobs[job_id]


class Server:
    """Serves a FakeService. It can die and start again at the same port with the same jobs."""

    def __init__(self) -> None:
        self.service = FakeService()
        # This socket is bound but does not listen. It reserves the port while the server is dead.
        self._reservation = socket.socket()
        self._reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._reservation.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._reservation.getsockname()[1]}"

    async def start(self) -> None:
        self._server = grpc.aio.server()
        pb_grpc.add_TrainingServiceServicer_to_server(self.service, self._server)
        self._server.add_insecure_port(self.address)
        await self._server.start()

    async def die(self) -> None:
        await self._server.stop(None)

    async def die_at_first_call(self) -> None:
        """Wait for the first call, and stop the server."""
        while not self.service.requests:
            await asyncio.sleep(0.01)
        await self.die()

    async def close(self) -> None:
        await self.die()
        self._reservation.close()


class ServerInThread:
    """A Server for blocking tests, with its event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-service", daemon=True)
        self._thread.start()
        self.server = self.do(self._make())
        self.address, self.service = self.server.address, self.server.service

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=PATIENCE)

    def set_job(self, job_id: int, **fields: Any) -> None:
        self.do(self.service.set_job(job_id, **fields))

    def print(self, job_id: int, *chunks: str, rank: int = 0) -> None:
        self.do(self.service.print(job_id, *chunks, rank=rank))

    def fail(
        self,
        request: type[Message],
        code: grpc.StatusCode,
        details: str = "",
        *,
        times: int = 1,
        after_effect: bool = False,
    ) -> None:
        """Let the next calls with this type of request fail before their effect. With `after_effect`, which
        is only for Train, they fail after it.
        """
        failure = Failure(code, details, after_effect)
        self.service.failures[request.__name__] += [failure] * times

    def die(self) -> None:
        self.do(self.server.die())

    def restart(self) -> None:
        self.do(self.server.start())

    def close(self) -> None:
        self.do(self.server.close())
        left = self.do(self._others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=PATIENCE)
        self._loop.close()
        assert not left, f"calls are still open at the server: {left}"

    async def _make(self) -> Server:
        server = Server()
        await server.start()
        return server

    async def _others(self) -> set[asyncio.Task[Any]]:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        _, pending = await asyncio.wait(others, timeout=PATIENCE) if others else ((), set())
        return pending
