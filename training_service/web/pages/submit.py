"""The form that submits a job. It has an input for each parameter of the job's algorithm."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from starlette.responses import HTMLResponse, Response

from job_tracker.catalog import Algorithm, Parameter
from job_tracker.catalog.entries import Entry
from job_tracker.catalog.parameters import INSTANCES_PARAMETER
from job_tracker.domain.errors import InvalidField, RequestKeyConflict, TrackerError
from job_tracker.domain.tags import checked_tags
from training_service._generated import training_service_pb2 as pb
from training_service.api.caller import project_of
from training_service.api.convert.requests import request_for, request_of
from training_service.web import commands
from training_service.web.showing import number
from training_service.web.visits import LONGEST_KEY, Visit, see, whole_number

_PARAMETER: Final = "parameters."
_TEXTS: Final = {
    "dataset_id": "dataset_id",
    "dataset_version": "train_data_version_hash",
    "name": "name",
    "model": "output_model_name",
}
"""The fields of the request's metadata, by the names of the form's inputs."""
_NAMES_IN_ERRORS: Final = {
    "train_data_version_hash": "dataset_version",
    "output_model_name": "model",
    f"{_PARAMETER}{INSTANCES_PARAMETER}": "instances",
}
"""The names of inputs, by the names of the fields in errors. Only names that differ are here."""
_FIELDS: Final = (*_TEXTS, "instances", "tags", "queue", "priority", "flavor")
_KEPT: Final = ("pod_options", "retry_policy", "deadlines", "number_policy", "expected")
"""The fields of a request that have no input. A form that was filled from a job keeps the job's values."""
_LARGEST_ID: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A form with its present values."""

    algorithm: str
    project: str
    values: Mapping[str, str]
    """The values by the names of the form's inputs. Empty values are left out of the request."""
    key: str
    """The request key. It makes sure that a form that is sent twice makes only one job."""
    source: int = 0
    """The id of the job whose values are kept for fields without an input. 0: those fields get defaults."""


async def form(visit: Visit) -> Response:
    """Show the form, empty or with the values of another job."""
    filled = await _begun(visit)
    return await _shown(visit, filled)


async def submit(visit: Visit) -> Response:
    """Queue the job of the form.

    If a field is wrong, show the form again with the error beside the field.
    """
    filled = _sent(visit)
    caller = visit.who.using(project_of("project", filled.project))
    kept = await _kept(visit, filled)
    try:
        job = await visit.jobs.submit(caller, request_of(_request(filled, kept)))
    except RequestKeyConflict as error:
        again = replace(filled, key=visit.new_key())
        problem = (
            f"this form was already submitted as job {error.job_id}; to queue another job, submit it again"
        )
        return await _shown(visit, again, problem=problem)
    except InvalidField as error:
        name = _NAMES_IN_ERRORS.get(error.field, error.field)
        return await _shown(visit, filled, problem=str(error), field=name)
    return see(f"/jobs/{job.id}")


async def lines(visit: Visit) -> Response:
    """Return the request of the form as command lines."""
    filled = _sent(visit)
    return HTMLResponse(
        visit.rendered("submit_lines.html", **_lines(visit, filled, await _kept(visit, filled)))
    )


async def _shown(visit: Visit, filled: Filled, problem: str = "", field: str = "") -> Response:
    project = project_of("project", filled.project)
    found = await visit.parts.catalog.list_algorithms(visit.who, project)
    entries = {entry.name: entry for entry in found if entry.value is not None}
    chosen = entries.get(filled.algorithm)
    algorithm = chosen.value if chosen else None
    inputs = set(_FIELDS) | {f"{_PARAMETER}{name}" for name in (algorithm.parameters if algorithm else ())}
    return visit.page(
        "submit.html",
        400 if problem else 200,
        filled=filled,
        entries=sorted(entries.values(), key=lambda entry: entry.name),
        chosen=chosen,
        parameters=(parameters := _parameters(chosen)),
        limits={name: _limits(parameter) for name, parameter in parameters},
        datasets=await _datasets(visit, project) if algorithm and algorithm.dataset else [],
        queues=await visit.parts.catalog.list_queues(visit.who, project),
        projects=[view.project.name for view in await visit.parts.access.list_projects(visit.who)],
        problem=problem,
        field=field if field in inputs else "",
        **_lines(visit, filled, await _kept(visit, filled)),
    )


async def _datasets(visit: Visit, project: str) -> list[str]:
    return [entry.name for entry in await visit.parts.catalog.list_datasets(visit.who, project)]


async def _begun(visit: Visit) -> Filled:
    """Return the form that the URL asks for: with the values of a job, or with an algorithm and a project."""
    if source := visit.whole_number("from", 0, 1, _LARGEST_ID):
        job = (await visit.jobs.get(visit.who, source)).job
        request = request_for(job)
        values = {name: getattr(request.metadata, field) for name, field in _TEXTS.items()}
        parameters = dict(request.metadata.parameters)
        values["instances"] = parameters.pop(INSTANCES_PARAMETER, "")
        values |= {f"{_PARAMETER}{name}": value for name, value in parameters.items()}
        values |= {"tags": " ".join(job.tags), "queue": request.queue, "priority": request.priority}
        values["flavor"] = request.flavor
        return Filled(
            algorithm=job.spec.algorithm,
            project=job.spec.project,
            values=values,
            key=visit.new_key(),
            source=source,
        )
    return Filled(
        algorithm=visit.query.get("algorithm", ""),
        project=visit.query.get("project", "") or visit.who.default_project,
        values={},
        key=visit.new_key(),
    )


def _sent(visit: Visit) -> Filled:
    values = {
        name: value.strip() if name in _FIELDS else value
        for name, value in visit.form.items()
        if name in _FIELDS or name.startswith(_PARAMETER)
    }
    return Filled(
        algorithm=visit.form.get("algorithm", ""),
        project=visit.form.get("project", "") or visit.who.default_project,
        values=values,
        key=visit.form.get("key", "")[:LONGEST_KEY],
        source=whole_number("from", visit.form.get("from", ""), 0, 1, _LARGEST_ID),
    )


async def _kept(visit: Visit, filled: Filled) -> pb.TrainRequest:
    """Return a request with only the values for which the form has no input (`_KEPT`).

    They are copied from the job with which the form was filled. The request is empty if there is no such job.
    Raises JobNotFound if the job does not exist any more.
    """
    kept = pb.TrainRequest()
    if filled.source:
        of_source = request_for((await visit.jobs.get(visit.who, filled.source)).job)
        for name in _KEPT:
            if of_source.HasField(name):
                getattr(kept, name).CopyFrom(getattr(of_source, name))
    return kept


def _request(filled: Filled, kept: pb.TrainRequest) -> pb.TrainRequest:
    values = filled.values
    parameters = {
        name.removeprefix(_PARAMETER): value
        for name, value in values.items()
        if name.startswith(_PARAMETER) and value
    }
    if values.get("instances"):
        parameters[INSTANCES_PARAMETER] = values["instances"]
    texts = {field: values.get(name, "") for name, field in _TEXTS.items()}
    request = pb.TrainRequest(
        metadata=pb.TrainingJobMetadata(algorithm=filled.algorithm, parameters=parameters, **texts),
        request_key=filled.key,
        tags=checked_tags("tags", values.get("tags", "").replace(",", " ").split()),
        queue=values.get("queue", ""),
        priority=values.get("priority", ""),
        flavor=values.get("flavor", ""),
    )
    request.MergeFrom(kept)
    return request


def _lines(visit: Visit, filled: Filled, kept: pb.TrainRequest) -> dict[str, Any]:
    """Return the command lines for trainctl and grpcurl.

    They are empty if the form names no algorithm or has invalid tags. Other fields are not checked.
    """
    if not filled.algorithm:
        return {"trainctl": "", "grpcurl": ""}
    try:
        request = _request(filled, kept)
    except TrackerError:
        return {"trainctl": "", "grpcurl": ""}
    request.ClearField("request_key")
    return {
        "trainctl": commands.submit_line(request, filled.project),
        "grpcurl": commands.grpcurl_line(
            *("Train", request, visit.parts.api_address, filled.project),
            is_encrypted=visit.parts.visitors.is_encrypted,
        ),
    }


def _limits(parameter: Parameter) -> str:
    """Return the range of the parameter in words; empty if any number is allowed."""
    least, above, most = parameter.minimum, parameter.exclusive_minimum, parameter.maximum
    if least is not None and most is not None and above is None:
        return f"{number(least)} to {number(most)}"
    parts = [f"above {number(above)}"] if above is not None else []
    parts += [f"at least {number(least)}"] if least is not None else []
    parts += [f"at most {number(most)}"] if most is not None else []
    return ", ".join(parts)


def _parameters(entry: Entry[Algorithm] | None) -> list[tuple[str, Parameter]]:
    if entry is None or entry.value is None:
        return []
    return [item for item in entry.value.parameters.items() if item[0] != INSTANCES_PARAMETER]
