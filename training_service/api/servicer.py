"""The calls of training.TrainingService."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TypeVar

from job_tracker import callers, log_context
from job_tracker.callers import FairTurns
from job_tracker.errors import LimitExceeded
from job_tracker.jobs import Jobs
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import TrainingServiceServicer
from training_service.api import convert
from training_service.api.errors import ServiceClosing
from training_service.api.interceptors import Context
from training_service.api.peers import peer_host
from training_service.api.sending import LargeAnswers

T = TypeVar("T")

KNOWS_CANCELLED = "x-knows-cancelled"
"""Metadata of callers that know the status `cancelled`, with any value."""
# At once: a page may take 40 MB while it is made, and 2 MB as it is sent.
_LISTS_MADE, _LISTS_SENT, _LISTS_OF_ONE = 2, 16, 12
# A status of a large job takes 0.2 MB as it is sent.
_LARGE_STATUS = 8 * 1024
_STATUSES_SENT, _STATUSES_OF_ONE = 64, 48
# A file that is fetched takes 1 MB as it is sent, for as long as its client does not read it.
_FETCHES, _FETCHES_OF_ONE, _FETCH_PATIENCE = 64, 48, 20.0
_SEND_SECONDS = 20.0


class TrainingServicer(TrainingServiceServicer):
    """Converts and passes on; errors are the interceptor's."""

    def __init__(self, jobs: Jobs, *, cancelled_as_failure: bool = False) -> None:
        """With `cancelled_as_failure`, callers that do not know the status `cancelled` get `failure`."""
        self._jobs = jobs
        self._cancelled_as_failure = cancelled_as_failure
        self._waiting: set[asyncio.Timeout] = set()
        self._closing = False
        self._making = asyncio.Semaphore(_LISTS_MADE)
        self._statuses = LargeAnswers(_STATUSES_SENT, _STATUSES_OF_ONE, _SEND_SECONDS)
        self._fetches = FairTurns(_FETCHES, _FETCHES_OF_ONE)
        self._lists = LargeAnswers(_LISTS_SENT, _LISTS_OF_ONE, _SEND_SECONDS)

    async def Train(self, request: pb.TrainRequest, context: Context) -> pb.TrainResponse:
        """See training_service.proto."""
        callers.caller.set(peer_host(context.peer()))  # each call has a context of its own
        job = await self._jobs.submit(convert.request_of(request))
        _is_about(job.id)
        return pb.TrainResponse(job_id=job.id)

    async def GetTrainingStatus(
        self, request: pb.GetTrainingStatusRequest, context: Context
    ) -> pb.GetTrainingStatusResponse:
        """See training_service.proto."""
        callers.caller.set(peer_host(context.peer()))
        _is_about(request.job_id)
        status = await self._bounded(request.job_id, convert.status_of(await self._jobs.get(request.job_id)))
        if self._cancelled_as_failure and not _knows_cancelled(context):
            convert.without_cancelled(status)
        return status

    async def ListTrainingJobs(
        self, request: pb.ListTrainingJobsRequest, context: Context
    ) -> pb.ListTrainingJobsResponse:
        """See training_service.proto."""
        callers.caller.set(peer_host(context.peer()))
        where, limit, before = convert.page_of(request)
        await self._lists.take_place()
        async with self._making:
            page = await self._jobs.list(where, limit=limit, before=before)
            return pb.ListTrainingJobsResponse(
                jobs=[convert.status_of(view) for view in page.jobs],
                next_page_token=str(page.next_before) if page.next_before else "",
            )

    async def CancelTraining(
        self, request: pb.CancelTrainingRequest, context: Context
    ) -> pb.GetTrainingStatusResponse:
        """See training_service.proto."""
        callers.caller.set(peer_host(context.peer()))
        _is_about(request.job_id)
        return await self._bounded(request.job_id, convert.status_of(await self._jobs.cancel(request.job_id)))

    async def WatchTraining(
        self, request: pb.WatchTrainingRequest, context: Context
    ) -> AsyncIterator[pb.GetTrainingStatusResponse]:
        """See training_service.proto."""
        _is_about(request.job_id)
        async for view in self._until_closed(self._jobs.watch(request.job_id)):
            yield convert.status_of(view)

    async def GetTrainingLogs(
        self, request: pb.GetTrainingLogsRequest, context: Context
    ) -> AsyncIterator[pb.GetTrainingLogsResponse]:
        """See training_service.proto."""
        callers.caller.set(peer_host(context.peer()))
        _is_about(request.job_id, request.attempt)
        async for piece in self._until_closed(self._jobs.logs(*convert.logs_of(request))):
            yield convert.log_of(piece, timestamps=request.timestamps)

    async def GetTrainingMetrics(
        self, request: pb.GetTrainingMetricsRequest, context: Context
    ) -> AsyncIterator[pb.MetricSeries]:
        """See training_service.proto."""
        for series in await self._jobs.metrics(request.job_id, frozenset(request.names)):
            yield convert.series_of(request.job_id, series)

    async def GetTrainingArtifacts(
        self, request: pb.GetTrainingArtifactsRequest, context: Context
    ) -> pb.GetTrainingArtifactsResponse:
        """See training_service.proto."""
        return convert.made_by(*await self._jobs.artifacts(request.job_id))

    async def FetchTrainingArtifact(
        self, request: pb.FetchTrainingArtifactRequest, context: Context
    ) -> AsyncIterator[pb.FetchTrainingArtifactResponse]:
        """See training_service.proto."""
        who = peer_host(context.peer())
        await self._wait_to_fetch(who)
        try:
            async for content in self._until_closed(self._jobs.fetch(request.job_id, request.name)):
                yield pb.FetchTrainingArtifactResponse(content=content)
        finally:
            self._fetches.give(who)

    def close(self) -> None:
        """End the streams: their clients are told to come again. Other calls end by themselves."""
        self._closing = True
        for waiting in self._waiting:
            waiting.reschedule(asyncio.get_running_loop().time())

    async def _wait_to_fetch(self, who: str) -> None:
        try:
            async with asyncio.timeout(_FETCH_PATIENCE):
                await self._fetches.take(who)
        except TimeoutError as error:
            raise LimitExceeded(
                f"{_FETCHES} files are fetched at once, {_FETCHES_OF_ONE} of them from one address, and none "
                f"of these calls has ended within {_FETCH_PATIENCE:g} s: read to its end, or end, what you "
                "fetch already, or try again later"
            ) from error

    async def _bounded(
        self, job_id: int, status: pb.GetTrainingStatusResponse
    ) -> pb.GetTrainingStatusResponse:
        """The status, if it is large once there is a place for it; what is then sent is made only then."""
        if status.ByteSize() < _LARGE_STATUS:
            return status
        del status  # many may wait
        await self._statuses.take_place()
        return convert.status_of(await self._jobs.get(job_id))

    async def _until_closed(self, items: AsyncGenerator[T, None]) -> AsyncIterator[T]:
        """The items as they come. Raises ServiceClosing in place of the next once the service ends.

        What is given up is the waiting for an item, never the sending of one: gRPC tells the client
        nothing, for ever, if the handler is cancelled while it sends.
        """
        async with aclosing(items):
            while not self._closing:
                try:
                    async with asyncio.timeout(None) as waiting:
                        self._waiting.add(waiting)
                        try:
                            item = await anext(items)
                        finally:
                            self._waiting.discard(waiting)
                except StopAsyncIteration:
                    return
                except TimeoutError:
                    if not waiting.expired():
                        raise
                    break
                yield item
        raise ServiceClosing


def _knows_cancelled(context: Context) -> bool:
    """Whether the caller says that it knows the status which was added to those of the first clients."""
    return any(key == KNOWS_CANCELLED for key, _ in context.invocation_metadata() or ())


def _is_about(job_id: int, attempt: int = 0) -> None:
    """What is logged from now on in this call, which has a context of its own, is about this job."""
    log_context.subject.set(log_context.Subject(job_id, attempt))
