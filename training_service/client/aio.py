"""The client for asyncio programs: `TrainingClient`, awaited."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from training_service._generated.training_service_pb2 import (
    Deadlines,
    GetTrainingArtifactsResponse,
    GetTrainingLogsResponse,
    GetTrainingStatusResponse,
    MetricSeries,
    PodOptions,
    RetryPolicy,
    TrainingStatus,
)
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub
from training_service.client import requests
from training_service.client.channel import address_or_default, open_async_channel
from training_service.client.errors import DeadlineExceeded, Unavailable, WaitTimedOut
from training_service.client.requests import Parameters
from training_service.client.stream_retry import async_messages
from training_service.client.translation import translated_errors
from training_service.client.watching import LogReading, Watch, has_ended


class AsyncTrainingClient:
    """Talks to the training service from an event loop; make it inside the loop that will use it.

        async with AsyncTrainingClient() as client:
            job_id = await client.submit("my-training", "my-dataset", "3f2a9c", instances=3)
            async for status in client.watch(job_id):
                print(status.message)

    Arguments, methods and errors are those of `TrainingClient`, whose documentation holds here too.
    Cancelling a task in the middle of a call gives the call up; it does not cancel the job.
    """

    def __init__(self, address: str | None = None, *, timeout: float = 30.0, patience: float = 60.0) -> None:
        self.address = address_or_default(address)
        self._timeout = timeout
        self._patience = patience
        self._channel = open_async_channel(self.address)
        self._stub = TrainingServiceStub(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection and the streams that are open on it. It may be repeated."""
        await self._channel.close()

    async def submit(
        self,
        algorithm: str,
        dataset_id: str,
        dataset_version: str,
        *,
        name: str = "",
        parameters: Parameters | None = None,
        instances: int | None = None,
        output_model_name: str = "",
        request_key: str | None = None,
        pod_options: PodOptions | None = None,
        retry_policy: RetryPolicy | None = None,
        deadlines: Deadlines | None = None,
    ) -> int:
        """Queues a training job and returns its id; see `TrainingClient.submit`."""
        request = requests.train(
            algorithm,
            dataset_id,
            dataset_version,
            name=name,
            parameters=parameters,
            instances=instances,
            output_model_name=output_model_name,
            request_key=request_key,
            pod_options=pod_options,
            retry_policy=retry_policy,
            deadlines=deadlines,
        )
        with translated_errors(self.address):
            return (await self._stub.Train(request, timeout=self._timeout)).job_id

    async def status(self, job_id: int) -> GetTrainingStatusResponse:
        """The job as it is now; see `TrainingClient.status`."""
        request = requests.status(job_id)
        with translated_errors(self.address):
            return await self._stub.GetTrainingStatus(
                request, timeout=self._timeout, metadata=requests.KNOWS_CANCELLED
            )

    async def list(
        self,
        statuses: Iterable[TrainingStatus.ValueType] = (),
        *,
        name_prefix: str = "",
        algorithm: str = "",
        page_size: int = 0,
    ) -> AsyncIterator[GetTrainingStatusResponse]:
        """Jobs, newest first, fetched page by page; see `TrainingClient.list`."""
        request = requests.jobs(statuses, name_prefix=name_prefix, algorithm=algorithm, page_size=page_size)
        while True:
            with translated_errors(self.address):
                page = await self._stub.ListTrainingJobs(request, timeout=self._timeout)
            for job in page.jobs:
                yield job
            if not page.next_page_token:
                return
            request = requests.next_page(request, page.next_page_token)

    async def cancel(self, job_id: int) -> GetTrainingStatusResponse:
        """Asks for the job to be cancelled and returns its status; see `TrainingClient.cancel`."""
        request = requests.cancel(job_id)
        with translated_errors(self.address):
            return await self._stub.CancelTraining(request, timeout=self._timeout)

    def watch(self, job_id: int) -> AsyncIterator[GetTrainingStatusResponse]:
        """The status at every change until the job has ended; see `TrainingClient.watch`."""
        return self._watch(job_id, timeout=None)

    async def wait(self, job_id: int, *, timeout: float | None = None) -> GetTrainingStatusResponse:
        """Waits until the job has ended and returns its last status; see `TrainingClient.wait`."""
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
        """What one process printed, or every one, in chunks of whole lines; see `TrainingClient.logs`."""
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
                async with self._messages(lambda: self._stub.GetTrainingLogs(log.request)) as chunks:
                    async for chunk in chunks:
                        log.took(chunk)
                        yield chunk
                return
            except Unavailable as error:
                pause = log.pause_after(error)
            await asyncio.sleep(pause)

    async def metrics(self, job_id: int, names: Iterable[str] = ()) -> AsyncIterator[MetricSeries]:
        """What the job has reported of its metrics over time; see `TrainingClient.metrics`."""
        request = requests.metrics(job_id, names)
        async with self._messages(
            lambda: self._stub.GetTrainingMetrics(request, timeout=self._timeout)
        ) as found:
            async for series in found:
                yield series

    async def artifacts(self, job_id: int) -> GetTrainingArtifactsResponse:
        """What the job has made; see `TrainingClient.artifacts`."""
        request = requests.artifacts(job_id)
        with translated_errors(self.address):
            return await self._stub.GetTrainingArtifacts(request, timeout=self._timeout)

    async def fetch(self, job_id: int, name: str) -> AsyncIterator[bytes]:
        """The content of one artifact, in pieces; see `TrainingClient.fetch`."""
        request = requests.fetch(job_id, name)
        async with self._messages(lambda: self._stub.FetchTrainingArtifact(request)) as pieces:
            async for piece in pieces:
                yield piece.content

    async def _watch(self, job_id: int, *, timeout: float | None) -> AsyncIterator[GetTrainingStatusResponse]:
        request = requests.watch(job_id)
        watch = Watch(patience=self._patience, timeout=timeout)
        while True:
            try:
                async with self._messages(
                    lambda: self._stub.WatchTraining(request, timeout=watch.time_left())
                ) as statuses:
                    async for status in statuses:
                        if watch.is_news(status):
                            yield status
                watch.check_ended()
                return
            except Unavailable as error:
                pause = watch.pause_after(error)
            await asyncio.sleep(pause)

    def _messages(self, begin: Callable[[], Any]) -> aclosing[AsyncGenerator[Any, None]]:
        """The messages of a stream, which is given up when its reader leaves."""
        return aclosing(async_messages(begin, self.address))
