"""Algorithms, datasets and queues, for asyncio programs.

The class for plain programs, in catalog_sync.py, is generated from this file by scripts/generate-client.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from training_service._generated.catalog_service_pb2 import (
    Algorithm,
    Dataset,
    ListAlgorithmsRequest,
    ListDatasetsRequest,
    ListQueuesRequest,
    Queue,
    RemoveAlgorithmRequest,
    RemoveDatasetRequest,
    RemoveQueueRequest,
    SetAlgorithmRequest,
    SetDatasetRequest,
    SetQueueRequest,
)
from training_service._generated.catalog_service_pb2_grpc import CatalogServiceStub
from training_service.client.calls_aio import answer_of
from training_service.client.credentials import Credentials
from training_service.client.errors import InvalidRequest
from training_service.client.requests import encoded

T = TypeVar("T")


class AsyncCatalog:
    """Lists and declares algorithms, datasets and queues. It is the `catalog` of an AsyncTrainingClient.

    An algorithm or a dataset that is declared with a `project` can be used only in this project. One that is
    declared without a `project` can be used in all projects.

    Every method may raise TrainingServiceError, such as NotAllowed if the caller's role does not allow the
    call.
    """

    def __init__(
        self, channel: grpc.aio.Channel, address: str, credentials: Credentials, timeout: float
    ) -> None:
        self._stub = CatalogServiceStub(channel)
        self._address = address
        self._credentials = credentials
        self._timeout = timeout

    async def algorithms(self, project: str = "", name: str = "") -> AsyncIterator[Algorithm]:
        """Yield the algorithms that jobs of a project can name, sorted by name.

        Without a `project`, these are the algorithms of the caller's default project. With `name`, yield only
        the algorithm with this name; raises NotFound if there is none.
        """
        request = encoded(lambda: ListAlgorithmsRequest(project=project, name=name, page_size=1000))
        while True:
            page = await self._answer_of(self._stub.ListAlgorithms, request)
            for algorithm in page.algorithms:
                yield algorithm
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def datasets(self, project: str = "", name: str = "") -> AsyncIterator[Dataset]:
        """Yield the datasets that jobs of a project can name, sorted by id.

        Without a `project`, these are the datasets of the caller's default project. With `name`, yield only
        the dataset with this id; raises NotFound if there is none.
        """
        request = encoded(lambda: ListDatasetsRequest(project=project, name=name, page_size=1000))
        while True:
            page = await self._answer_of(self._stub.ListDatasets, request)
            for dataset in page.datasets:
                yield dataset
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def set_algorithm(
        self, name: str, definition: Mapping[str, Any], *, project: str = ""
    ) -> Algorithm:
        """Declare an algorithm, or change it.

        `definition` has the fields of algorithms.NAME in a configuration. Jobs that were accepted before do
        not change.
        """
        text = _text(definition)
        request = encoded(lambda: SetAlgorithmRequest(name=name, project=project, definition=text))
        return await self._answer_of(self._stub.SetAlgorithm, request)

    async def remove_algorithm(self, name: str, *, project: str = "") -> None:
        """Remove a declared algorithm.

        Raises NotFound if there is no such algorithm, and FailedPrecondition if a file of the service
        declares it.
        """
        request = encoded(lambda: RemoveAlgorithmRequest(name=name, project=project))
        await self._answer_of(self._stub.RemoveAlgorithm, request)

    async def set_dataset(self, name: str, definition: Mapping[str, Any], *, project: str = "") -> Dataset:
        """Declare a dataset, or change it.

        `definition` has the fields of datasets.NAME in a configuration.
        """
        text = _text(definition)
        request = encoded(lambda: SetDatasetRequest(name=name, project=project, definition=text))
        return await self._answer_of(self._stub.SetDataset, request)

    async def remove_dataset(self, name: str, *, project: str = "") -> None:
        """Remove a declared dataset. Its data stays.

        Raises NotFound if there is no such dataset, and FailedPrecondition if a file of the service declares
        it.
        """
        request = encoded(lambda: RemoveDatasetRequest(name=name, project=project))
        await self._answer_of(self._stub.RemoveDataset, request)

    async def queues(self, project: str = "", name: str = "") -> AsyncIterator[Queue]:
        """Yield the queues that jobs of a project may use, and the parents of these queues, sorted by name.

        With `name`, yield only the queue with this name; raises NotFound if there is none. Without a project,
        operators get all queues; other callers get the queues of their default project.
        """
        request = encoded(lambda: ListQueuesRequest(project=project, name=name, page_size=1000))
        while True:
            page = await self._answer_of(self._stub.ListQueues, request)
            for queue in page.queues:
                yield queue
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def set_queue(self, name: str, definition: Mapping[str, Any]) -> Queue:
        """Declare a queue, or change it.

        `definition` has the fields of scheduling.queues.NAME in a configuration. Jobs that were accepted
        before stay in the queue.
        """
        text = _text(definition)
        request = encoded(lambda: SetQueueRequest(name=name, definition=text))
        return await self._answer_of(self._stub.SetQueue, request)

    async def remove_queue(self, name: str) -> None:
        """Remove a declared queue.

        Raises NotFound if there is no such queue. Raises FailedPrecondition if a file of the service declares
        it, if jobs wait or run in it, or if other queues are below it.
        """
        request = encoded(lambda: RemoveQueueRequest(name=name))
        await self._answer_of(self._stub.RemoveQueue, request)

    async def _answer_of(self, call: Callable[..., Awaitable[T]], request: Message) -> T:
        return await answer_of(call, request, self._timeout, self._address, self._credentials.metadata)


def _text(definition: Mapping[str, Any]) -> str:
    try:
        return json.dumps(definition, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"definition: it cannot be written as JSON ({error})") from error
