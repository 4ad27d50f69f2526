"""The client for plain programs, scripts and notebooks.

Generated from aio.py by scripts/generate-client: change it there.
"""

import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from google.protobuf.message import Message

from training_service._generated.training_service_pb2 import (
    Deadlines,
    GetTrainingArtifactsResponse,
    GetTrainingLogsResponse,
    GetTrainingStatusResponse,
    MetricSeries,
    NumberPolicy,
    PodOptions,
    RetryPolicy,
    TrainingStatus,
    TrainRequest,
)
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub
from training_service.client import requests
from training_service.client.access_sync import Access
from training_service.client.calls_sync import answer_of
from training_service.client.catalog_sync import Catalog
from training_service.client.channel import open_channel
from training_service.client.connection import connection, project_or_default
from training_service.client.credentials import Credentials
from training_service.client.errors import DeadlineExceeded, ResourceExhausted, Unavailable, WaitTimedOut
from training_service.client.programs_sync import Programs
from training_service.client.requests import Metadata, Parameters
from training_service.client.run.repository import revision_of
from training_service.client.run.sending import OnProgress
from training_service.client.run.working_tree import WorkingTree, read_folder
from training_service.client.stream_retry import StreamRetry
from training_service.client.translation import reading
from training_service.client.watching import LogReading, Watch, has_ended

T = TypeVar("T")


class TrainingClient:
    """A client of the training service.

        with TrainingClient() as client:
            job_id = client.submit("my-training", "my-dataset", "3f2a9c", instances=3)
            for status in client.watch(job_id):
                print(status.message)

    Threads may share one client.

    `address` is HOST:PORT. For several replicas, give their IP addresses separated by commas. The default is
    the environment variable TRAINING_SERVICE_ADDRESS, or localhost:51001 if it is not set. `timeout` bounds
    one call, including its retries, in seconds. `patience` is the time, in seconds, for which `watch`, `wait`
    and `logs` try to connect again after the service went away. `project` is the project of new jobs and of
    lists. The default is the environment variable TRAINING_PROJECT, or the caller's default project if it is
    not set.

    `ca` is a PEM file with the authorities of a service with TLS, or "system" for those that gRPC trusts by
    itself. `cert` and `key` are PEM files with the caller's certificate. `server_name` is a name in the
    service's certificate, if it is not the host of `address`. Their defaults are the environment variables
    TRAINING_SERVICE_CA, _CERT, _KEY and _SERVER_NAME, and ~/.config/training-service/client.toml (see
    docs/security.md). The files are read once: a client that outlives its certificate has to be created anew.

    `token` proves who is calling, or the first line of the file `token_file`. Their defaults are the
    environment variables TRAINING_SERVICE_TOKEN and TRAINING_SERVICE_TOKEN_FILE, and what `trainctl login`
    stored. Files and variables are read again for each call. A token is sent only over TLS, or to this
    machine. `access` has the operations on tokens and projects, `catalog` those on algorithms and datasets.

    If the service does not answer, a call is retried for about 3 s with growing pauses. A call that a limit
    refuses is repeated when the service says, within `timeout`, or `patience` for streams.

    Every method raises TrainingServiceError (see `training_service.client.errors`). Methods that return an
    iterator raise it during the iteration.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        ca: str | os.PathLike[str] | None = None,
        cert: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
        server_name: str | None = None,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        timeout: float = 30.0,
        patience: float = 60.0,
        project: str | None = None,
    ) -> None:
        found = connection(address, ca=ca, cert=cert, key=key, server_name=server_name)
        self.address = found.address
        self.project = project_or_default(project)
        self._in_project = requests.in_project(self.project)
        self._timeout = timeout
        self._patience = patience
        self._channel = open_channel(found)
        self._stub = TrainingServiceStub(self._channel)
        self._credentials = Credentials(found, token, token_file)
        self.access = Access(self._channel, self.address, self._credentials, self._timeout)
        self.catalog = Catalog(self._channel, self.address, self._credentials, self._timeout)
        self._programs = Programs(self._channel, self.address, self._metadata, self._timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and all streams that are open on it. May be called more than once."""
        self._channel.close()

    def submit(
        self,
        algorithm: str,
        dataset_id: str = "",
        dataset_version: str = "",
        *,
        name: str = "",
        parameters: Parameters | None = None,
        instances: int | None = None,
        output_model_name: str = "",
        request_key: str | None = None,
        pod_options: PodOptions | None = None,
        retry_policy: RetryPolicy | None = None,
        deadlines: Deadlines | None = None,
        number_policy: NumberPolicy | None = None,
        tags: Iterable[str] = (),
    ) -> int:
        """Queue a training job and return its id. When this returns, the job is durable.

        `dataset_version` is the version's hash. Leave out both for an algorithm that needs no dataset.
        `instances` is the number of processes that train together (the parameter PARALLEL_INSTANCES).
        `pod_options` apply to each of them on Kubernetes. `retry_policy` lists the failures that are followed
        by another attempt. `deadlines` bound the time for waiting, starting and running. `number_policy` says
        whether an attempt fails when it reports NaN or infinity. `tags` are words by which `list` finds the
        job. Omitted options get the service's defaults.

        Every request carries a request key, by default a new one, so the retries of this call queue one job.
        To repeat the call itself after Unavailable or DeadlineExceeded, give your own key (at most 128
        characters): the same key with the same request returns the same id, and with another request raises
        AlreadyExists.

        Raises InvalidRequest, which names the field; NotFound for an unknown algorithm or dataset; and
        ResourceExhausted if the service has no room for the job.
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
            number_policy=number_policy,
            tags=tags,
        )
        return self._train(request, self._in_project)

    def run(
        self,
        command: Sequence[str],
        *,
        folder: str | os.PathLike[str] | WorkingTree = ".",
        tree: str = "",
        framework: str = "",
        environment: Parameters | None = None,
        requirements: str = "",
        python_environment: str = "",
        instances: int | None = None,
        name: str = "",
        dataset_id: str = "",
        dataset_version: str = "",
        output_model_name: str = "",
        request_key: str | None = None,
        pod_options: PodOptions | None = None,
        retry_policy: RetryPolicy | None = None,
        deadlines: Deadlines | None = None,
        tags: Iterable[str] = (),
        version: str | None = None,
        number_policy: NumberPolicy | None = None,
        on_progress: OnProgress | None = None,
    ) -> int:
        """Upload a folder, queue a job that runs a command in it, and return the job's id.

            client.run(["python", "train.py", "--lr", "0.1"], instances=3)

        Only files that the service lacks are sent. Files that git ignores, `.git` and virtual environments
        are left out. Each instance starts in a copy of its own. The command is run without a shell;
        `environment` has variables for it. `requirements` is a file of the folder with the packages that it
        needs, such as "requirements.txt"; `python_environment` is the name of an environment that the
        operator has configured. `framework` sets up the group, by default "pytorch". `tree` is the
        name of files that were uploaded before, which replace `folder`. `version` is recorded with the job,
        by default the commit of the folder, together with the changes of tracked files since.
        `on_progress` is called with the bytes that were sent and those to send. The other options are those
        of `submit`.

        Raises InvalidRequest for files that cannot be sent, NotAllowed if the service runs no uploaded
        programs, and the errors of `submit`.
        """
        changes = None
        if not tree:
            files = folder if isinstance(folder, WorkingTree) else read_folder(folder)
            self._programs.upload(files, on_progress, self._in_project)
            tree = files.name
            if version is None:
                revision = revision_of(files)
                version = revision.version
                if revision.changes:
                    changes = self._programs.upload_changes(revision, self._in_project)
        program = requests.program(
            tree,
            command,
            framework=framework,
            environment=environment,
            version=version or "",
            requirements=requirements,
            python_environment=python_environment,
            changes=changes,
        )
        request = requests.train(
            "",
            dataset_id,
            dataset_version,
            name=name,
            parameters=None,
            instances=instances,
            output_model_name=output_model_name,
            request_key=request_key,
            pod_options=pod_options,
            retry_policy=retry_policy,
            deadlines=deadlines,
            tags=tags,
            number_policy=number_policy,
            program=program,
        )
        return self._train(request, self._in_project)

    def rerun(
        self,
        job_id: int,
        *,
        parameters: Parameters | None = None,
        name: str | None = None,
        dataset_id: str | None = None,
        dataset_version: str | None = None,
        command: Sequence[str] | None = None,
        environment: Parameters | None = None,
        request_key: str | None = None,
    ) -> int:
        """Queue a job with the same request as another, and return its id. The job's project stays.

        `parameters` are those with another value, None leaves a value as it is. Values that the other job
        had by default stay as they were, even if the defaults have changed. `command` replaces that of an
        uploaded program, and `environment` has those of its variables that get another value. For
        `request_key` see `submit`.

        Raises as `submit` does, and NotFound if there is no such job.
        """
        request = requests.changed(
            self.request_of(job_id),
            parameters=parameters,
            name=name,
            dataset_id=dataset_id,
            dataset_version=dataset_version,
            command=command,
            environment=environment,
            request_key=request_key,
        )
        status = self.status(job_id)
        project = requests.in_project(self.project or status.project)
        return self._train(request, project)

    def request_of(self, job_id: int) -> TrainRequest:
        """Return the request that queues the same job again. Raises NotFound if there is no such job."""
        return (self.artifacts(job_id)).provenance.request

    def _train(self, request: TrainRequest, project: Metadata) -> int:
        response = self._answer_of(self._stub.Train, request, project)
        return response.job_id

    def status(self, job_id: int) -> GetTrainingStatusResponse:
        """Return the job's current status. Raises NotFound if there is no such job."""
        request = requests.status(job_id)
        return self._answer_of(self._stub.GetTrainingStatus, request, requests.KNOWS_CANCELLED)

    def list(
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
    ) -> Iterator[GetTrainingStatusResponse]:
        """Yield jobs, newest first, optionally filtered by status, name prefix, algorithm and submitter.

        `since` (inclusive) and `until` (exclusive) bound the time of submission; times without a time zone
        are local times. With `mine`, these are the caller's own jobs. A job has all of the `tags`. With
        `before_job`, these are jobs with lower ids.

        These are jobs of the client's project, or with `all_projects` of every project in which the caller
        has a role. They are fetched page by page, each page when the iteration reaches it. A `page_size` of 0
        leaves the size to the service.
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
            page = self._answer_of(self._stub.ListTrainingJobs, request, self._in_project)
            yield from page.jobs
            if not page.next_page_token:
                return
            request = requests.next_page(request, page.next_page_token)

    def cancel(self, job_id: int) -> GetTrainingStatusResponse:
        """Request the job's cancellation and return its status.

        This does not wait until the processes of a running job have stopped. It may be repeated, and does
        not change a job that has ended. Raises NotFound if there is no such job.
        """
        request = requests.cancel(job_id)
        return self._answer_of(self._stub.CancelTraining, request)

    def annotate(
        self,
        job_id: int,
        *,
        add_tags: Iterable[str] = (),
        remove_tags: Iterable[str] = (),
        note: str | None = None,
    ) -> GetTrainingStatusResponse:
        """Change the tags and the note of a job, in any state, and return its status.

        A `note` of None leaves the note as it is, and "" removes it. Raises NotFound if there is no such job,
        and InvalidRequest for a tag that is not allowed.
        """
        request = requests.annotate(job_id, add_tags=add_tags, remove_tags=remove_tags, note=note)
        return self._answer_of(self._stub.AnnotateTraining, request)

    def delete(self, job_id: int) -> None:
        """Delete a job that has ended, with its logs. Its model and its checkpoints stay.

        Raises NotFound if there is no such job, and FailedPrecondition if it has not ended.
        """
        request = requests.delete(job_id)
        self._answer_of(self._stub.DeleteTraining, request)

    def watch(self, job_id: int) -> Iterator[GetTrainingStatusResponse]:
        """Yield the current status, then the new one at every change, until the job has ended.

        A slow reader misses some statuses, but never the last. If the service goes away, this connects
        again, and raises Unavailable after `patience` seconds. Raises NotFound if there is no such job.
        """
        return self._watch(job_id, timeout=None)

    def wait(self, job_id: int, *, timeout: float | None = None) -> GetTrainingStatusResponse:
        """Wait until the job has ended, successfully or not, and return its last status.

        `timeout` is in seconds: None waits without bound, and 0 only checks. Raises WaitTimedOut when the
        time is up (the job goes on), NotFound if there is no such job, and Unavailable like `watch`.
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
        """Yield the output of one rank, or of all ranks with `all_ranks`, in chunks of whole lines.

        `rank` 0 is the master. With `all_ranks`, lines are ordered by time, and each chunk names its rank.
        `attempt` 0 is the last attempt, and with `follow` also the attempts after it; each chunk names its
        attempt. `follow` waits for further output, also of a job that has not started, until the job or the
        given attempt ends. `tail_lines` starts with that many last lines of each rank. `since` starts with
        the output after that time. `timestamps` puts the time before each line.

        If the service goes away, this connects again and continues after the last chunk, so no line is lost
        or repeated. It raises Unavailable after `patience` seconds. To continue later or elsewhere, give the
        `position` of the last chunk received.
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
                with closing(
                    self._messages(lambda: self._stub.GetTrainingLogs(log.request, metadata=self._metadata()))
                ) as chunks:
                    for chunk in chunks:
                        log.advance(chunk)
                        yield chunk
                return
            except Unavailable as error:
                pause = log.pause_after(error)
            time.sleep(pause)

    def metrics(self, job_id: int, names: Iterable[str] = ()) -> Iterator[MetricSeries]:
        """Yield the job's metrics over time, ordered by name. No `names` means all metrics.

        A long series is thinned to about a thousand points. Raises NotFound if there is no such job.
        """
        request = requests.metrics(job_id, names)
        with closing(
            self._messages(
                lambda: self._stub.GetTrainingMetrics(
                    request, timeout=self._timeout, metadata=self._metadata()
                ),
                self._timeout,
            )
        ) as found:
            yield from found

    def artifacts(self, job_id: int) -> GetTrainingArtifactsResponse:
        """Return the job's artifacts and their origin. Raises NotFound if there is no such job."""
        request = requests.artifacts(job_id)
        return self._answer_of(self._stub.GetTrainingArtifacts, request)

    def fetch(self, job_id: int, name: str) -> Iterator[bytes]:
        """Yield the content of one fetchable artifact in pieces.

        Raises NotFound if there is no such job or artifact, and Unavailable if the stream breaks.
        """
        request = requests.fetch(job_id, name)
        with closing(
            self._messages(lambda: self._stub.FetchTrainingArtifact(request, metadata=self._metadata()))
        ) as pieces:
            for piece in pieces:
                yield piece.content

    def changes(self, job_id: int) -> Iterator[bytes]:
        """Yield the uncommitted changes that were recorded with a job's program, as `git diff` prints them.

        Raises NotFound if there is no such job, or if no changes are recorded.
        """
        request = requests.changes(job_id)
        with closing(
            self._messages(lambda: self._stub.GetTrainingChanges(request, metadata=self._metadata()))
        ) as pieces:
            for piece in pieces:
                yield piece.content

    def _watch(self, job_id: int, *, timeout: float | None) -> Iterator[GetTrainingStatusResponse]:
        request = requests.watch(job_id)
        watch = Watch(patience=self._patience, timeout=timeout)
        while True:
            try:
                with closing(
                    self._messages(
                        lambda: self._stub.WatchTraining(
                            request, timeout=watch.time_left(), metadata=self._metadata()
                        ),
                        watch.time_left(),
                    )
                ) as statuses:
                    for status in statuses:
                        if watch.is_news(status):
                            yield status
                watch.check_ended()
                return
            except Unavailable as error:
                pause = watch.pause_after(error)
            time.sleep(pause)

    def _metadata(self, more: Metadata = ()) -> Metadata:
        """Return the metadata of a call, with the token of this moment."""
        return (*self._credentials.metadata(), *more)

    def _answer_of(self, call: Callable[..., T], request: Message, more: Metadata = ()) -> T:
        return answer_of(call, request, self._timeout, self.address, lambda: self._metadata(more))

    def _messages(self, begin: Callable[[], Any], seconds: float | None = None) -> Generator[Any, None, None]:
        """Yield the messages of the stream that `begin` opens; retry it until its first message.

        If a limit refuses it, it is tried for `seconds`; None: for `patience`.
        """
        retry = StreamRetry(self._patience if seconds is None else seconds)
        while True:
            try:
                with reading(begin(), self.address) as stream:
                    for message in stream:
                        retry.end()
                        yield message
                return
            except (Unavailable, ResourceExhausted) as error:
                pause = retry.pause_after(error)
            time.sleep(pause)
