"""The servicer of training.CatalogService."""

# The interceptor gives handlers a Call in place of gRPC's context.
# mypy: disable-error-code="override"

from typing import Any

from job_tracker.catalog import Algorithm, Dataset, Entry, Parameter
from job_tracker.declarations.operations import Declarations, ListedQueue
from job_tracker.domain.caller import ALL_PROJECTS, Caller, Role
from job_tracker.scheduling.recipes import PreemptionRecipe
from training_service._generated import catalog_service_pb2 as pb
from training_service._generated.catalog_service_pb2_grpc import CatalogServiceServicer
from training_service.api.caller import Call
from training_service.api.convert.times import duration_of
from training_service.api.paging import page_of


class CatalogServicer(CatalogServiceServicer):
    """Converts messages and calls the domain. The interceptor handles errors."""

    def __init__(self, declarations: Declarations) -> None:
        self._declarations = declarations

    async def ListAlgorithms(
        self, request: pb.ListAlgorithmsRequest, call: Call
    ) -> pb.ListAlgorithmsResponse:
        entries = await self._declarations.list_algorithms(call.caller, request.project, request.name)
        found, token = page_of(entries, _name_of, request, lambda entry: _algorithm(entry, call.caller))
        return pb.ListAlgorithmsResponse(algorithms=found, next_page_token=token)

    async def ListDatasets(self, request: pb.ListDatasetsRequest, call: Call) -> pb.ListDatasetsResponse:
        entries = await self._declarations.list_datasets(call.caller, request.project, request.name)
        found, token = page_of(entries, _name_of, request, lambda entry: _dataset(entry, call.caller))
        return pb.ListDatasetsResponse(datasets=found, next_page_token=token)

    async def SetAlgorithm(self, request: pb.SetAlgorithmRequest, call: Call) -> pb.Algorithm:
        entry = await self._declarations.set_algorithm(
            call.caller, request.name, request.project, request.definition
        )
        return _algorithm(entry, call.caller)

    async def RemoveAlgorithm(
        self, request: pb.RemoveAlgorithmRequest, call: Call
    ) -> pb.RemoveAlgorithmResponse:
        await self._declarations.remove_algorithm(call.caller, request.name, request.project)
        return pb.RemoveAlgorithmResponse()

    async def SetDataset(self, request: pb.SetDatasetRequest, call: Call) -> pb.Dataset:
        entry = await self._declarations.set_dataset(
            call.caller, request.name, request.project, request.definition
        )
        return _dataset(entry, call.caller)

    async def RemoveDataset(self, request: pb.RemoveDatasetRequest, call: Call) -> pb.RemoveDatasetResponse:
        await self._declarations.remove_dataset(call.caller, request.name, request.project)
        return pb.RemoveDatasetResponse()

    async def ListQueues(self, request: pb.ListQueuesRequest, call: Call) -> pb.ListQueuesResponse:
        listed = await self._declarations.list_queues(call.caller, request.project, request.name)
        found, token = page_of(
            listed, lambda each: each.entry.name, request, lambda each: _queue(each, call.caller)
        )
        return pb.ListQueuesResponse(queues=found, next_page_token=token)

    async def SetQueue(self, request: pb.SetQueueRequest, call: Call) -> pb.Queue:
        listed = await self._declarations.set_queue(call.caller, request.name, request.definition)
        return _queue(listed, call.caller)

    async def RemoveQueue(self, request: pb.RemoveQueueRequest, call: Call) -> pb.RemoveQueueResponse:
        await self._declarations.remove_queue(call.caller, request.name)
        return pb.RemoveQueueResponse()


def _name_of(entry: Entry[Any]) -> str:
    return entry.name


def _algorithm(entry: Entry[Algorithm], caller: Caller) -> pb.Algorithm:
    algorithm, source = entry.value, _source(entry, caller)
    if algorithm is None:
        return pb.Algorithm(name=entry.name, source=source)
    return pb.Algorithm(
        name=entry.name,
        source=source,
        description=algorithm.description,
        code_version=algorithm.version,
        framework=algorithm.framework,
        parameters=[_parameter(name, each) for name, each in algorithm.parameters.items()],
        free_parameters=algorithm.free_parameters,
        roles=[
            pb.AlgorithmRole(name=name, instances=role.instances, max_instances=role.max_instances or 0)
            for name, role in algorithm.roles.items()
        ],
        is_elastic=algorithm.elastic is not None,
        max_instances=min(algorithm.max_instances or 0, 2**31 - 1),
        needs_dataset=algorithm.dataset,
        is_checked=bool(algorithm.check),
    )


def _parameter(name: str, parameter: Parameter) -> pb.AlgorithmParameter:
    return pb.AlgorithmParameter(
        name=name,
        type=parameter.type,
        default=parameter.default,
        minimum=parameter.minimum,
        maximum=parameter.maximum,
        exclusive_minimum=parameter.exclusive_minimum,
        choices=parameter.choices,
        description=parameter.description,
    )


def _dataset(entry: Entry[Dataset], caller: Caller) -> pb.Dataset:
    dataset = entry.value
    return pb.Dataset(
        name=entry.name,
        source=_source(entry, caller),
        uri=dataset.uri if dataset else "",
        files=dataset.files if dataset else (),
    )


def _queue(listed: ListedQueue, caller: Caller) -> pb.Queue:
    entry, recipe = listed.entry, listed.entry.value
    if recipe is None:
        return pb.Queue(name=entry.name, source=_source(entry, caller))
    return pb.Queue(
        name=entry.name,
        source=_source(entry, caller),
        parent=recipe.parent,
        weight=recipe.weight,
        quotas=[
            pb.QueueQuota(
                flavor=flavor,
                resource=resource,
                nominal=nominal,
                borrow=quota.borrow.get(resource),
                lend=quota.lend.get(resource),
            )
            for flavor, quota in recipe.quotas.items()
            for resource, nominal in quota.nominal.items()
        ],
        max_running=recipe.max_running,
        max_queued=recipe.max_queued,
        max_priority=recipe.max_priority or "",
        takes_jobs=listed.takes_jobs,
        is_default=listed.is_default,
        preemption=_preemption(recipe.preemption),
    )


def _preemption(recipe: PreemptionRecipe) -> pb.QueuePreemption:
    return pb.QueuePreemption(
        by_priority=recipe.by_priority,
        reclaim=recipe.reclaim,
        min_runtime=duration_of(recipe.min_runtime) if recipe.min_runtime is not None else None,
        max_preemptions=recipe.max_preemptions,
        protected=recipe.protected or "",
        resize_period=duration_of(recipe.resize_period) if recipe.resize_period is not None else None,
    )


def _source(entry: Entry[Any], caller: Caller) -> pb.Source:
    role = caller.role_in(entry.project) if entry.project else caller.roles.get(ALL_PROJECTS)
    may_change = role is not None and role >= Role.ADMIN
    source = pb.Source(
        origin=entry.origin,
        project=entry.project,
        version=entry.version,
        changed_by=entry.changed_by,
        problem=entry.problem,
        definition=entry.definition if may_change else "",
    )
    if entry.changed_at is not None:
        source.changed_at.FromDatetime(entry.changed_at)
    return source
