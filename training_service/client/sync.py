"""The client for plain programs, scripts and notebooks."""

import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from types import TracebackType
from typing import Self

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
from training_service.client.channel import address_or_default, open_channel
from training_service.client.errors import DeadlineExceeded, Unavailable, WaitTimedOut
from training_service.client.requests import Parameters
from training_service.client.stream_retry import messages
from training_service.client.translation import translated_errors
from training_service.client.watching import LogReading, Watch, has_ended


class TrainingClient:
    """Talks to the training service.

        with TrainingClient() as client:
            job_id = client.submit("my-training", "my-dataset", "3f2a9c", instances=3)
            print(client.wait(job_id).message)

    `address` is host:port, or those of several replicas with commas between them, as IP addresses; by
    default that of the environment variable TRAINING_SERVICE_ADDRESS, else localhost:51001. `timeout`
    bounds one call, its retries included, in seconds. `patience` is how long, in seconds, a watch, a
    wait or a log bears with a service that went away.

    A service that does not answer is tried again for some 3 s, with growing pauses. Every method
    raises TrainingServiceError (see `training_service.client.errors`); those that return iterators
    raise it at a step of the iteration. A client may be shared between threads.
    """

    def __init__(self, address: str | None = None, *, timeout: float = 30.0, patience: float = 60.0) -> None:
        self.address = address_or_default(address)
        self._timeout = timeout
        self._patience = patience
        self._channel = open_channel(self.address)
        self._stub = TrainingServiceStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection and the streams that are open on it. It may be repeated."""
        self._channel.close()

    def submit(
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
        """Queues a training job and returns its id. When it returns, the job is durable.

        `dataset_version` is the version's hash. `instances` is how many processes train together
        (the parameter PARALLEL_INSTANCES), and `pod_options` what each of them gets on Kubernetes.
        `retry_policy` says which failures are followed by another attempt, and `deadlines` how long the
        job may wait, start and run. What is left out gets the service's default.

        A request key is always sent, a fresh one unless given, so that the retries of this call
        queue one job. Give your own (at most 128 characters) to repeat the call itself, after
        Unavailable or DeadlineExceeded: the same key with the same request gives the same id, with
        another request AlreadyExists.

        Raises InvalidRequest, naming the field; NotFound for an unknown algorithm or dataset;
        ResourceExhausted when the service has no room for the job.
        """
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
            return self._stub.Train(request, timeout=self._timeout).job_id

    def status(self, job_id: int) -> GetTrainingStatusResponse:
        """The job as it is now. Raises NotFound when there is no such job."""
        request = requests.status(job_id)
        with translated_errors(self.address):
            return self._stub.GetTrainingStatus(
                request, timeout=self._timeout, metadata=requests.KNOWS_CANCELLED
            )

    def list(
        self,
        statuses: Iterable[TrainingStatus.ValueType] = (),
        *,
        name_prefix: str = "",
        algorithm: str = "",
        page_size: int = 0,
    ) -> Iterator[GetTrainingStatusResponse]:
        """Jobs, newest first; a page is fetched when the iteration reaches it.

        No statuses: every status. `page_size` 0 leaves it to the service; it is at most 1000.
        """
        request = requests.jobs(statuses, name_prefix=name_prefix, algorithm=algorithm, page_size=page_size)
        while True:
            with translated_errors(self.address):
                page = self._stub.ListTrainingJobs(request, timeout=self._timeout)
            yield from page.jobs
            if not page.next_page_token:
                return
            request = requests.next_page(request, page.next_page_token)

    def cancel(self, job_id: int) -> GetTrainingStatusResponse:
        """Asks for the job to be cancelled and returns its status.

        It does not wait: the processes of a running job are still being stopped then. It may be
        repeated, and leaves a job that has ended as it is. Raises NotFound when there is no such job.
        """
        request = requests.cancel(job_id)
        with translated_errors(self.address):
            return self._stub.CancelTraining(request, timeout=self._timeout)

    def watch(self, job_id: int) -> Iterator[GetTrainingStatusResponse]:
        """The status now, then again at every change of state or progress, until the job has ended.

        A slow reader misses statuses, never the last. When the service goes away in the middle,
        this connects again, and raises Unavailable only after `patience` seconds without it.
        Raises NotFound when there is no such job.
        """
        return self._watch(job_id, timeout=None)

    def wait(self, job_id: int, *, timeout: float | None = None) -> GetTrainingStatusResponse:
        """Waits until the job has ended, however it ended, and returns its last status.

        `timeout` is in seconds; None waits for ever, 0 only looks. Raises WaitTimedOut when the time
        is up (the job goes on), NotFound when there is no such job, and Unavailable like `watch`.
        """
        status = self.status(job_id)
        if has_ended(status):
            return status
        try:
            for status in self._watch(job_id, timeout=timeout):  # noqa: B007
                pass
        except DeadlineExceeded as error:
            raise WaitTimedOut(f"job {job_id} has not ended within {timeout:g} s", status) from error
        return status

    def logs(
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
    ) -> Iterator[GetTrainingLogsResponse]:
        """What one process printed, or with `all_ranks` every one, in chunks of whole lines.

        `rank` 0 is the master; with `all_ranks` the lines come in the order of time, and each chunk says
        whose it is. `attempt` 0 is the last attempt, and with `follow` also those that come after it; each
        chunk says of which it is. `follow` waits for what is still to come, also for a job that has not
        started, and ends with the job, or with the one attempt that was asked for. `tail_lines` begins
        with the last so many lines of each process, `since` with what was printed after that moment.
        `timestamps` puts the time before each line.

        When the service goes away in the middle, this connects again and goes on after the last chunk, so
        that no line is lost or comes twice, and raises Unavailable only after `patience` seconds without
        it. To go on later, or elsewhere, give the `position` of the last chunk that you have had.
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
                for chunk in messages(lambda: self._stub.GetTrainingLogs(log.request), self.address):
                    log.took(chunk)
                    yield chunk
                return
            except Unavailable as error:
                pause = log.pause_after(error)
            time.sleep(pause)

    def metrics(self, job_id: int, names: Iterable[str] = ()) -> Iterator[MetricSeries]:
        """What the job has reported of these metrics (none: of all) over time, by name.

        A long series is thinned to a thousand points or so. Raises NotFound when there is no such job.
        """
        request = requests.metrics(job_id, names)
        yield from messages(
            lambda: self._stub.GetTrainingMetrics(request, timeout=self._timeout), self.address
        )

    def artifacts(self, job_id: int) -> GetTrainingArtifactsResponse:
        """What the job has made, and what it was made from. Raises NotFound when there is no such job."""
        request = requests.artifacts(job_id)
        with translated_errors(self.address):
            return self._stub.GetTrainingArtifacts(request, timeout=self._timeout)

    def fetch(self, job_id: int, name: str) -> Iterator[bytes]:
        """The content of one fetchable artifact, in pieces.

        Raises NotFound when there is no such job or file. A stream that breaks raises Unavailable.
        """
        request = requests.fetch(job_id, name)
        for piece in messages(lambda: self._stub.FetchTrainingArtifact(request), self.address):
            yield piece.content

    def _watch(self, job_id: int, *, timeout: float | None) -> Iterator[GetTrainingStatusResponse]:
        request = requests.watch(job_id)
        watch = Watch(patience=self._patience, timeout=timeout)
        while True:
            try:
                for status in messages(
                    lambda: self._stub.WatchTraining(request, timeout=watch.time_left()), self.address
                ):
                    if watch.is_news(status):
                        yield status
                return watch.check_ended()
            except Unavailable as error:
                pause = watch.pause_after(error)
            time.sleep(pause)
