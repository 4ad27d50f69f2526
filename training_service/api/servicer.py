"""The servicer of training.TrainingService."""

# The interceptor gives handlers a Call in place of gRPC's context, and accepts serialized responses.
# mypy: disable-error-code="override"

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import TypeVar

from job_tracker.common import log_context
from job_tracker.domain.caller import Caller
from job_tracker.jobs import Jobs, JobView
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import TrainingServiceServicer
from training_service.api.caller import Call
from training_service.api.convert import jobs, lists, logs, requests, results
from training_service.api.convert.queue_snapshot import queue_snapshot_of
from training_service.api.convert.waiting import explanation_of, queue_of, queue_request_of
from training_service.api.errors import ServiceClosing
from training_service.api.sending import Places
from training_service.api.statuses import Statuses

T = TypeVar("T")

KNOWS_CANCELLED = "x-knows-cancelled"
"""Metadata key of callers that know the status `cancelled`. Its value does not matter."""
# How many lists may be built at a time, sent at a time, and sent to one caller at a time. A page may take
# 40 MB while it is built, and 2 MB while it is sent.
_LISTS_MADE, _LISTS_SENT, _LISTS_OF_ONE = 2, 16, 12
# In bytes. A smaller message needs no place, because it takes less memory than the call itself.
_LARGE = 8 * 1024
# How many large messages of each kind may be sent at a time: in all, and to one caller. Until they are sent,
# the status of a large job takes 0.2 MB, a piece of a log 0.3 MB, and a piece of a file 1 MB.
_SENT, _OF_ONE = 64, 48
# The same limits for calls that send metrics. Until the client has read the metrics of a job, they take at
# most 50 MB.
_METRICS_SENT, _METRICS_OF_ONE = 4, 3
_SEND_SECONDS = 20.0


class TrainingServicer(TrainingServiceServicer):
    """Converts messages and calls the domain. The interceptor handles errors."""

    def __init__(self, jobs: Jobs, *, cancelled_as_failure: bool = False) -> None:
        """With `cancelled_as_failure`, GetTrainingStatus answers `failure` in place of `cancelled` to callers
        that do not know `cancelled`. Other calls answer `cancelled` to all callers.
        """
        self._jobs = jobs
        self._cancelled_as_failure = cancelled_as_failure
        self._waiting: set[asyncio.Timeout] = set()
        self._closing = False
        self._messages = Statuses()
        self._making = asyncio.Semaphore(_LISTS_MADE)
        self._lists = Places(_LISTS_SENT, _LISTS_OF_ONE, _SEND_SECONDS)
        self._statuses = Places(_SENT, _OF_ONE, _SEND_SECONDS)
        self._logs = Places(_SENT, _OF_ONE, _SEND_SECONDS)
        self._files = Places(_SENT, _OF_ONE, _SEND_SECONDS)
        self._metrics = Places(_METRICS_SENT, _METRICS_OF_ONE, _SEND_SECONDS)

    async def Train(self, request: pb.TrainRequest, call: Call) -> pb.TrainResponse:
        job = await self._jobs.submit(call.caller, requests.request_of(request))
        _set_log_subject(job.id)
        return pb.TrainResponse(job_id=job.id)

    async def GetTrainingStatus(self, request: pb.GetTrainingStatusRequest, call: Call) -> bytes:
        _set_log_subject(request.job_id)
        caller = call.caller
        status = await self._bounded(caller, await self._jobs.get(caller, request.job_id))
        if self._cancelled_as_failure and not _knows_cancelled(call):
            return jobs.without_cancelled(status)
        return status

    async def ListTrainingJobs(
        self, request: pb.ListTrainingJobsRequest, call: Call
    ) -> pb.ListTrainingJobsResponse:
        where, limit, before = lists.page_of(call.caller, request)
        await self._lists.take_until_sent(call.caller)
        async with self._making:
            page = await self._jobs.list(call.caller, where, limit=limit, before=before)
            return pb.ListTrainingJobsResponse(
                jobs=[jobs.entry_of(view) for view in page.jobs],
                next_page_token=str(page.next_before) if page.next_before else "",
            )

    async def ExplainTraining(
        self, request: pb.ExplainTrainingRequest, call: Call
    ) -> pb.ExplainTrainingResponse:
        _set_log_subject(request.job_id)
        return explanation_of(await self._jobs.explain(call.caller, request.job_id))

    async def GetQueue(self, request: pb.GetQueueRequest, call: Call) -> pb.GetQueueResponse:
        where, limit, after = queue_request_of(request)
        await self._lists.take_until_sent(call.caller)
        async with self._making:
            return queue_of(await self._jobs.queue(call.caller, where, limit=limit, after=after))

    async def GetQueueSnapshot(
        self, request: pb.GetQueueSnapshotRequest, call: Call
    ) -> pb.GetQueueSnapshotResponse:
        await self._lists.take_until_sent(call.caller)
        async with self._making:
            return queue_snapshot_of(await self._jobs.snapshot(call.caller, request.project))

    async def CancelTraining(self, request: pb.CancelTrainingRequest, call: Call) -> bytes:
        _set_log_subject(request.job_id)
        caller = call.caller
        return await self._bounded(caller, await self._jobs.cancel(caller, request.job_id))

    async def AnnotateTraining(self, request: pb.AnnotateTrainingRequest, call: Call) -> bytes:
        _set_log_subject(request.job_id)
        change = requests.annotation_of(request)
        return await self._bounded(
            call.caller, await self._jobs.annotate(call.caller, request.job_id, change)
        )

    async def DeleteTraining(
        self, request: pb.DeleteTrainingRequest, call: Call
    ) -> pb.DeleteTrainingResponse:
        _set_log_subject(request.job_id)
        await self._jobs.delete(call.caller, request.job_id)
        return pb.DeleteTrainingResponse()

    async def WatchTraining(
        self, request: pb.WatchTrainingRequest, call: Call
    ) -> AsyncIterator[pb.GetTrainingStatusResponse]:
        _set_log_subject(request.job_id)
        caller = call.caller
        async with aclosing(self._jobs.watch(caller, request.job_id)) as views:
            while (view := await self._next(views)) is not None:
                status = jobs.status_of(view)
                is_large = status.ByteSize() >= _LARGE
                if is_large:
                    del view, status  # free the memory, since many calls may wait
                with await self._place(caller, self._statuses, is_needed=is_large):
                    yield (
                        jobs.status_of(await self._jobs.get(caller, request.job_id)) if is_large else status
                    )

    async def GetTrainingLogs(
        self, request: pb.GetTrainingLogsRequest, call: Call
    ) -> AsyncIterator[pb.GetTrainingLogsResponse]:
        _set_log_subject(request.job_id, request.attempt)
        async with aclosing(self._jobs.logs(call.caller, *logs.logs_of(request))) as pieces:
            while (piece := await self._next(pieces)) is not None:
                with await self._place(call.caller, self._logs, is_needed=piece.size >= _LARGE):
                    yield logs.log_of(piece, timestamps=request.timestamps)

    async def GetTrainingMetrics(
        self, request: pb.GetTrainingMetricsRequest, call: Call
    ) -> AsyncIterator[pb.MetricSeries]:
        _set_log_subject(request.job_id)
        with await self._place(call.caller, self._metrics):
            for series in await self._jobs.metrics(call.caller, request.job_id, frozenset(request.names)):
                yield results.series_of(request.job_id, series)

    async def GetTrainingArtifacts(
        self, request: pb.GetTrainingArtifactsRequest, call: Call
    ) -> pb.GetTrainingArtifactsResponse:
        _set_log_subject(request.job_id)
        await self._statuses.take_until_sent(call.caller)
        return results.made_by(*await self._jobs.artifacts(call.caller, request.job_id))

    async def FetchTrainingArtifact(
        self, request: pb.FetchTrainingArtifactRequest, call: Call
    ) -> AsyncIterator[pb.FetchTrainingArtifactResponse]:
        _set_log_subject(request.job_id)
        async with aclosing(self._jobs.fetch(call.caller, request.job_id, request.name)) as pieces:
            while True:
                with await self._place(call.caller, self._files):
                    content = await self._next(pieces)
                    if content is None:
                        return
                    yield pb.FetchTrainingArtifactResponse(content=content)
                    del content

    async def GetTrainingChanges(
        self, request: pb.GetTrainingChangesRequest, call: Call
    ) -> AsyncIterator[pb.GetTrainingChangesResponse]:
        _set_log_subject(request.job_id)
        async with aclosing(self._jobs.changes(call.caller, request.job_id)) as pieces:
            while True:
                with await self._place(call.caller, self._files):
                    content = await self._next(pieces)
                    if content is None:
                        return
                    yield pb.GetTrainingChangesResponse(content=content)
                    del content

    def close(self) -> None:
        """End the streams with UNAVAILABLE, so that clients reconnect. Other calls end by themselves."""
        self._closing = True
        for waiting in self._waiting:
            waiting.reschedule(asyncio.get_running_loop().time())

    async def _bounded(self, caller: Caller, view: JobView) -> bytes:
        """Return the serialized status of a job.

        If the status is large, wait for a place (see `Places`), and then build the status again.
        """
        status = self._messages.of(view)
        if len(status) < _LARGE:
            return status
        job_id = view.job.id
        del view, status  # free the memory, since many calls may wait
        await self._statuses.take_until_sent(caller)
        return self._messages.of(await self._jobs.get(caller, job_id))

    async def _place(
        self, caller: Caller, places: Places, *, is_needed: bool = True
    ) -> AbstractContextManager[object]:
        """Wait for a place if `is_needed`, and return the context that frees it.

        Raises ServiceClosing when the service stops.
        """
        return await self._unless_closed(places.take(caller)) if is_needed else nullcontext()

    async def _next(self, items: AsyncGenerator[T, None]) -> T | None:
        """Return the next item, or None after the last one. Raises ServiceClosing when the service stops."""
        return await self._unless_closed(anext(items, None))

    async def _unless_closed(self, awaited: Awaitable[T]) -> T:
        """Return the result of `awaited`. Raises ServiceClosing when the service stops.

        Do not use this method to send a message: if a handler is cancelled while it sends, gRPC never ends
        the call for the client.
        """
        try:
            async with asyncio.timeout(0 if self._closing else None) as waiting:
                self._waiting.add(waiting)
                try:
                    return await awaited
                finally:
                    self._waiting.discard(waiting)
        except TimeoutError:
            if not waiting.expired():
                raise
            raise ServiceClosing from None


def _knows_cancelled(call: Call) -> bool:
    """Return whether the caller knows the status `cancelled`. The earliest clients do not."""
    return any(key == KNOWS_CANCELLED for key, _ in call.metadata)


def _set_log_subject(job_id: int, attempt: int = 0) -> None:
    """Add the job to the log context of this call. Each call has its own context."""
    log_context.subject.set(log_context.Subject(job_id, attempt))
