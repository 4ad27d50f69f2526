"""The client for asyncio programs.

The client for plain programs, in sync.py, is generated from this file by scripts/generate-client.
"""

import asyncio
import os
from collections.abc import Iterable, Sequence
from datetime import timedelta

from training_service._generated.training_service_pb2 import (
    Deadlines,
    GetTrainingStatusResponse,
    NumberPolicy,
    PodOptions,
    RetryPolicy,
    TrainRequest,
)
from training_service.client import requests
from training_service.client.access_aio import AsyncAccess
from training_service.client.catalog_aio import AsyncCatalog
from training_service.client.channel import open_async_channel
from training_service.client.connection import connection, project_or_default
from training_service.client.credentials import Credentials
from training_service.client.programs_aio import AsyncPrograms
from training_service.client.reading_aio import AsyncJobReader
from training_service.client.requests import Metadata, Parameters
from training_service.client.run.repository import revision_of
from training_service.client.run.sending import OnProgress
from training_service.client.run.working_tree import WorkingTree, read_folder


class AsyncTrainingClient(AsyncJobReader):
    """A client of the training service.

        async with AsyncTrainingClient() as client:
            job_id = await client.submit("my-training", "my-dataset", "3f2a9c", instances=3)
            async for status in client.watch(job_id):
                print(status.message)

    Create it in the event loop that uses it. Cancelling a task ends the task's call, not the job.

    `address` is HOST:PORT. For several replicas, give IP:PORT of each, separated by commas. The default is
    the environment variable TRAINING_SERVICE_ADDRESS, else the address in client.toml (see below), else
    127.0.0.1:51001. `timeout` is the longest time of one call in seconds, including its retries. It does not
    bound uploads, nor the streams of `watch`, `logs`, `fetch` and `changes`. `patience` is the time, in
    seconds, for which `watch`, `wait` and `logs` try to connect again after the service went away. `project`
    is the project of new jobs and of lists. The default is the environment variable TRAINING_PROJECT, or the
    caller's default project if the variable is not set.

    `ca` turns on TLS. It is a PEM file with the certificates of the authorities that the client trusts, or
    "system" for the authorities that gRPC trusts by default. `cert` and `key` are PEM files with the caller's
    certificate and its key. `server_name` is a name in the service's certificate. It is needed if the
    certificate does not name the host of `address`. The defaults of these four options are the environment
    variables TRAINING_SERVICE_CA, _CERT, _KEY and _SERVER_NAME, else ~/.config/training-service/client.toml
    (see docs/security.md). The files are read once, so create a new client before the caller's certificate
    expires.

    `token`, or the first line of the file `token_file`, proves who is calling. Without either, the client
    uses the first of these that exists: the environment variables TRAINING_SERVICE_TOKEN and
    TRAINING_SERVICE_TOKEN_FILE, the token that `trainctl login` stored, and, without `cert`, the operator's
    token of a service on this machine. Files and variables are read again for each call. A token is sent only
    over TLS, or to this machine. The attribute `access` has the operations on tokens, projects, report keys
    and audit events, and `catalog` those on algorithms, datasets and queues.

    If the service does not answer, a call that may be repeated is retried for about 3 s with growing pauses.
    If a limit refuses a call, the call is repeated within `timeout`, but not before the time that the service
    names. If a limit refuses a stream that `timeout` does not bound, the stream is repeated within
    `patience`.

    Every method may raise TrainingServiceError (see `training_service.client.errors`). Methods that return an
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
        super().__init__(
            open_async_channel(found),
            found.address,
            Credentials(found, token, token_file),
            timeout=timeout,
            patience=patience,
            project=project_or_default(project),
        )
        self.access = AsyncAccess(self._channel, self.address, self._credentials, self._timeout)
        self.catalog = AsyncCatalog(self._channel, self.address, self._credentials, self._timeout)
        self._programs = AsyncPrograms(self._channel, self.address, self._metadata, self._timeout)

    async def submit(
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
        queue: str = "",
        priority: str = "",
        expected: timedelta | None = None,
        flavor: str = "",
    ) -> int:
        """Queue a training job and return its id. When this returns, the job is durable.

        `dataset_version` is the version's hash. Leave out `dataset_id` and `dataset_version` for an algorithm
        that needs no dataset. `instances` is the number of instances that train together (the parameter
        PARALLEL_INSTANCES). `pod_options` apply to each instance (pod or container). `retry_policy` says
        after which failures the job gets another attempt, how many attempts it gets, and how long the pauses
        between them are. `deadlines` bound the time for waiting, starting, running and making progress.
        `number_policy` says whether an attempt fails when it reports NaN or infinity. `tags` are words by
        which `list` finds the job. `queue` is the queue in which the job waits, and `priority` is the name of
        a priority class, or a number. `expected` is the expected run time of an attempt, and `flavor` the
        kind of machine on which the job runs. Omitted options get the service's defaults.

        Every request carries a request key, by default a new one. So if this call is retried, it still queues
        only one job. To repeat the call yourself after Unavailable or DeadlineExceeded, give your own key (at
        most 128 characters). The same key with the same request returns the same id. The same key with
        another request raises AlreadyExists.

        Raises InvalidRequest, which names the field; NotFound for an unknown algorithm or dataset; and
        ResourceExhausted if the queue, the capacity or a quota is full.
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
            queue=queue,
            priority=priority,
            expected=expected,
            flavor=flavor,
        )
        return await self._train(request, self._in_project)

    async def run(
        self,
        command: Sequence[str],
        *,
        folder: str | os.PathLike[str] | WorkingTree = ".",
        tree: str = "",
        framework: str = "",
        environment: Parameters | None = None,
        requirements: str = "",
        python_environment: str = "",
        image: str = "",
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
        queue: str = "",
        priority: str = "",
        expected: timedelta | None = None,
        flavor: str = "",
    ) -> int:
        """Upload a folder, queue a job that runs a command in it, and return the job's id.

        client.run(["python", "train.py", "--lr", "0.1"], instances=3)

        Only files that the service lacks are sent. Files that git ignores, `.git`, `__pycache__` and virtual
        environments are left out. Each instance starts in its own copy of the files. The command is run
        without a shell. `environment` has variables for the command. `requirements` is a file of the folder
        with the packages that the command needs, such as "requirements.txt". `python_environment` is the name
        of an environment that the operator has configured. `image` is the image to run in, one of those that
        the operator allows on Docker or Kubernetes. `framework` is the name of the framework that sets up the
        group, by default "pytorch". `tree` is the name of a tree that was uploaded before. Its files are used
        instead of the files of `folder`. `version` is recorded with the job. By default, the commit of the
        uploaded folder is recorded, with the changes of tracked files since this commit. `on_progress` is
        called with the number of bytes sent so far, and the number of bytes to send in all. The other options
        are those of `submit`.

        Raises InvalidRequest for files that cannot be sent, NotAllowed if the service runs no uploaded
        programs, and the errors of `submit`.
        """
        requests.check_command(command)
        changes = None
        if not tree:
            files = (
                folder if isinstance(folder, WorkingTree) else await asyncio.to_thread(read_folder, folder)
            )
            await self._programs.upload(files, on_progress, self._in_project)
            tree = files.name
            if version is None:
                revision = await asyncio.to_thread(revision_of, files)
                version = revision.version
                if revision.changes:
                    changes = await self._programs.upload_changes(revision, self._in_project)
        program = requests.program(
            tree,
            command,
            framework=framework,
            environment=environment,
            version=version or "",
            requirements=requirements,
            python_environment=python_environment,
            image=image,
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
            queue=queue,
            priority=priority,
            expected=expected,
            flavor=flavor,
        )
        return await self._train(request, self._in_project)

    async def rerun(
        self,
        job_id: int,
        *,
        parameters: Parameters | None = None,
        name: str | None = None,
        dataset_id: str | None = None,
        dataset_version: str | None = None,
        command: Sequence[str] | None = None,
        environment: Parameters | None = None,
        deadlines: Deadlines | None = None,
        request_key: str | None = None,
    ) -> int:
        """Queue a job with the same request as job `job_id`, and return the new job's id.

        The new job is in the client's project or, if the client has none, in the project of job `job_id`.

        `parameters` are the parameters that get another value. Options that are None change nothing. Values
        that job `job_id` got by default stay as they were, even if the defaults have changed. `command`
        replaces the command of an uploaded program, and `environment` has the program's variables that get
        another value. `deadlines` has the deadlines that get another value. For `request_key` see `submit`.

        Raises the errors of `submit`, and NotFound if there is no such job.
        """
        request = requests.changed(
            await self.request_of(job_id),
            parameters=parameters,
            name=name,
            dataset_id=dataset_id,
            dataset_version=dataset_version,
            command=command,
            environment=environment,
            deadlines=deadlines,
            request_key=request_key,
        )
        status = await self.status(job_id)
        project = requests.in_project(self.project or status.project)
        return await self._train(request, project)

    async def request_of(self, job_id: int) -> TrainRequest:
        """Return the request that queues the same job again. Raises NotFound if there is no such job."""
        return (await self.artifacts(job_id)).provenance.request

    async def _train(self, request: TrainRequest, project: Metadata) -> int:
        response = await self._answer_of(self._stub.Train, request, project)
        return response.job_id

    async def cancel(self, job_id: int) -> GetTrainingStatusResponse:
        """Request the job's cancellation and return its status.

        The call does not wait until the processes of a running job have stopped. It may be repeated, and does
        not change a job that has ended. Raises NotFound if there is no such job.
        """
        request = requests.cancel(job_id)
        return await self._answer_of(self._stub.CancelTraining, request)

    async def annotate(
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
        return await self._answer_of(self._stub.AnnotateTraining, request)

    async def delete(self, job_id: int) -> None:
        """Delete a job that has ended, with its logs. Its model and its checkpoints stay.

        Raises NotFound if there is no such job, and FailedPrecondition if it has not ended.
        """
        request = requests.delete(job_id)
        await self._answer_of(self._stub.DeleteTraining, request)
