"""Reads jobs for asyncio programs: their status, logs, metrics and artifacts.

The class for plain programs, in reading_sync.py, is generated from this file by scripts/generate-client.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
from google.protobuf.message import Message

from training_service._generated.training_service_pb2 import (
    ExplainTrainingResponse,
    GetQueueResponse,
    GetQueueSnapshotResponse,
    GetTrainingArtifactsResponse,
    GetTrainingLogsResponse,
    GetTrainingStatusResponse,
    MetricSeries,
    TrainingStatus,
)
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub
from training_service.client import requests
from training_service.client.calls_aio import answer_of
from training_service.client.credentials import Credentials
from training_service.client.errors import DeadlineExceeded, ResourceExhausted, Unavailable, WaitTimedOut
from training_service.client.requests import Metadata
from training_service.client.stream_retry import StreamRetry
from training_service.client.translation import reading
from training_service.client.watching import LogReading, Watch, has_ended

T = TypeVar("T")


class AsyncJobReader:
    """The part of a client that reads jobs. It owns the connection, which the client's other parts share."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        address: str,
        credentials: Credentials,
        *,
        timeout: float,
        patience: float,
        project: str,
    ) -> None:
        """The options are those of `AsyncTrainingClient`."""
        self.address = address
        self.project = project
        self._channel = channel
        self._stub = TrainingServiceStub(channel)
        self._credentials = credentials
        self._timeout = timeout
        self._patience = patience
        self._in_project = requests.in_project(project)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection and all streams that are open on it. May be called more than once."""
        await self._channel.close()

    async def status(self, job_id: int) -> GetTrainingStatusResponse:
        """Return the job's current status. Raises NotFound if there is no such job."""
        request = requests.status(job_id)
        return await self._answer_of(self._stub.GetTrainingStatus, request, requests.KNOWS_CANCELLED)

    async def list(
        self,
        statuses: Iterable[TrainingStatus.ValueType] = (),
        *,
        name_prefix: str = "",
        algorithm: str = "",
        submitted_by: str = "",
        all_projects: bool = False,
        page_size: int = 0,
        since: datetime | None = None,
        until: datetime | None = None,
        mine: bool = False,
        tags: Iterable[str] = (),
        before_job: int = 0,
    ) -> AsyncIterator[GetTrainingStatusResponse]:
        """Yield jobs, newest first.

        The options select jobs by status, beginning of the name, algorithm and submitter. `since` (inclusive)
        and `until` (exclusive) bound the time of submission; times without a time zone are local times. With
        `mine`, only the caller's own jobs are listed. Only jobs with all of the `tags` are listed. With
        `before_job`, only jobs with lower ids are listed. The jobs are from the client's project or, with
        `all_projects`, from every project in which the caller has a role. The pages of the list are fetched
        when the iteration reaches them. A `page_size` of 0 leaves the size to the service.
        """
        request = requests.jobs(
            statuses,
            name_prefix=name_prefix,
            algorithm=algorithm,
            submitted_by=submitted_by,
            all_projects=all_projects,
            page_size=page_size,
            since=since,
            until=until,
            mine=mine,
            tags=tags,
            before_job=before_job,
        )
        while True:
            page = await self._answer_of(self._stub.ListTrainingJobs, request, self._in_project)
            for job in page.jobs:
                yield job
            if not page.next_page_token:
                return
            request = requests.next_page(request, page.next_page_token)

    def watch(self, job_id: int) -> AsyncIterator[GetTrainingStatusResponse]:
        """Yield the current status of the job, then the new status at every change, until the job has ended.

        A slow reader may miss statuses, but not the last one. If the service goes away after the first
        status, the watch connects again; it raises Unavailable if the service stays away for `patience`
        seconds. Raises NotFound if there is no such job.
        """
        return self._watch(job_id, timeout=None)

    async def wait(self, job_id: int, *, timeout: float | None = None) -> GetTrainingStatusResponse:
        """Wait until the job has ended, successfully or not, and return its last status.

        `timeout` is in seconds: None waits without a limit, and 0 only checks. Raises WaitTimedOut when the
        time is up (the job continues), NotFound if there is no such job, and Unavailable like `watch`.
        """
        status = await self.status(job_id)
        if has_ended(status):
            return status
        try:
            async for status in self._watch(job_id, timeout=timeout):  # noqa: B007
                pass
        except DeadlineExceeded as error:
            raise WaitTimedOut(f"job {job_id} has not ended within {timeout:g} s", status) from error
        return status

    async def logs(
        self,
        job_id: int,
        *,
        rank: int = 0,
        all_ranks: bool = False,
        attempt: int = 0,
        follow: bool = False,
        tail_lines: int | None = None,
        since: datetime | None = None,
        timestamps: bool = False,
        position: str = "",
    ) -> AsyncIterator[GetTrainingLogsResponse]:
        """Yield the output of one rank, or of all ranks with `all_ranks`, in chunks of whole lines.

        `rank` 0 is the master. With `all_ranks`, lines are ordered by time, and each chunk names its rank.
        `attempt` 0 is the last attempt and, with `follow`, the attempts after it. Each chunk names its
        attempt. `follow` waits for further output, even of a job that has not started, until the job or the
        given attempt ends. With `tail_lines`, the output starts with the last `tail_lines` lines of each
        rank. With `since`, it starts after this time; a time without a time zone is local time. `timestamps`
        puts the time before each line.

        If the service goes away after the first chunk, this method connects again and continues after the
        last chunk, so no line is lost or repeated. It raises Unavailable if the service stays away for
        `patience` seconds. To continue later or elsewhere, give the `position` of the last chunk received.
        """
        request = requests.logs(
            job_id,
            rank=rank,
            all_ranks=all_ranks,
            attempt=attempt,
            follow=follow,
            tail_lines=tail_lines,
            since=since,
            timestamps=timestamps,
            position=position,
        )
        log = LogReading(request, patience=self._patience)
        while True:
            try:
                async with aclosing(
                    self._messages(lambda: self._stub.GetTrainingLogs(log.request, metadata=self._metadata()))
                ) as chunks:
                    async for chunk in chunks:
                        log.advance(chunk)
                        yield chunk
                return
            except Unavailable as error:
                pause = log.pause_after(error)
            await asyncio.sleep(pause)

    async def metrics(self, job_id: int, names: Iterable[str] = ()) -> AsyncIterator[MetricSeries]:
        """Yield the job's metrics over time, ordered by name. No `names` means all metrics.

        A long series is thinned to between 512 and 1024 points. Raises NotFound if there is no such job.
        """
        request = requests.metrics(job_id, names)
        async with aclosing(
            self._messages(
                lambda: self._stub.GetTrainingMetrics(
                    request, timeout=self._timeout, metadata=self._metadata()
                ),
                self._timeout,
            )
        ) as found:
            async for series in found:
                yield series

    async def artifacts(self, job_id: int) -> GetTrainingArtifactsResponse:
        """Return the job's artifacts and the origin of its model. Raises NotFound if there is no such job."""
        request = requests.artifacts(job_id)
        return await self._answer_of(self._stub.GetTrainingArtifacts, request)

    async def why(self, job_id: int) -> ExplainTrainingResponse:
        """Return why a queued job waits. Raises NotFound if there is no such job."""
        return await self._answer_of(self._stub.ExplainTraining, requests.why(job_id))

    async def queue(self, queue: str = "", *, limit: int = 1000) -> GetQueueResponse:
        """Return the present state of the queues: the use of each queue, and at most `limit` waiting jobs.

        The jobs are from the client's project or, if the client has none, from every project in which the
        caller has a role. With `queue`, they are from this queue only. `next_page_token` is set if more jobs
        wait.
        """
        request = requests.queue(self.project, queue, min(limit, 1000))
        found = await self._answer_of(self._stub.GetQueue, request)
        while found.next_page_token and len(found.jobs) < limit:
            request.page_token = found.next_page_token
            request.page_size = min(limit - len(found.jobs), 1000)
            page = await self._answer_of(self._stub.GetQueue, request)
            found.jobs.extend(page.jobs)
            found.next_page_token = page.next_page_token
        return found

    async def queue_snapshot(self, project: str = "") -> GetQueueSnapshotResponse:
        """Return the queue as the scheduler sees it.

        Jobs that the caller may not see have no id and no project. All machines, and the queues that the
        caller may not see, have numbers in place of names. The caller needs a role in `project` or, if
        that is "", in the caller's default project.
        """
        return await self._answer_of(self._stub.GetQueueSnapshot, requests.queue_snapshot(project))

    async def fetch(self, job_id: int, name: str) -> AsyncIterator[bytes]:
        """Yield the content of one fetchable artifact in pieces.

        Raises NotFound if there is no such job or artifact, and Unavailable if the stream breaks.
        """
        request = requests.fetch(job_id, name)
        async with aclosing(
            self._messages(lambda: self._stub.FetchTrainingArtifact(request, metadata=self._metadata()))
        ) as pieces:
            async for piece in pieces:
                yield piece.content

    async def changes(self, job_id: int) -> AsyncIterator[bytes]:
        """Yield the uncommitted changes that were recorded with a job's program, as `git diff` prints them.

        Raises NotFound if there is no such job, or if no changes are recorded.
        """
        request = requests.changes(job_id)
        async with aclosing(
            self._messages(lambda: self._stub.GetTrainingChanges(request, metadata=self._metadata()))
        ) as pieces:
            async for piece in pieces:
                yield piece.content

    async def _watch(self, job_id: int, *, timeout: float | None) -> AsyncIterator[GetTrainingStatusResponse]:
        request = requests.watch(job_id)
        watch = Watch(patience=self._patience, timeout=timeout)
        while True:
            try:
                async with aclosing(
                    self._messages(
                        lambda: self._stub.WatchTraining(
                            request, timeout=watch.time_left(), metadata=self._metadata()
                        ),
                        watch.time_left(),
                    )
                ) as statuses:
                    async for status in statuses:
                        if watch.is_news(status):
                            yield status
                watch.check_ended()
                return
            except Unavailable as error:
                pause = watch.pause_after(error)
            await asyncio.sleep(pause)

    def _metadata(self, more: Metadata = ()) -> Metadata:
        """Return the metadata of a call, with the present token."""
        return (*self._credentials.metadata(), *more)

    async def _answer_of(self, call: Callable[..., Awaitable[T]], request: Message, more: Metadata = ()) -> T:
        return await answer_of(call, request, self._timeout, self.address, lambda: self._metadata(more))

    async def _messages(
        self, begin: Callable[[], Any], seconds: float | None = None
    ) -> AsyncGenerator[Any, None]:
        """Yield the messages of the stream that `begin` opens.

        If the stream raises Unavailable before its first message, it is retried for about 3 s. If a limit
        refuses the stream, it is retried for `seconds`; if that is None, for `patience` seconds.
        """
        retry = StreamRetry(self._patience if seconds is None else seconds)
        while True:
            try:
                with reading(begin(), self.address) as stream:
                    async for message in stream:
                        retry.end()
                        yield message
                return
            except (Unavailable, ResourceExhausted) as error:
                pause = retry.pause_after(error)
            await asyncio.sleep(pause)
