"""The filter and the page of a list of jobs."""

from job_tracker.common.printable import quoted
from job_tracker.domain.caller import Caller
from job_tracker.domain.errors import InvalidField
from job_tracker.domain.job import JobState
from job_tracker.domain.tags import checked_count, checked_tags
from job_tracker.store.jobs import JobFilter
from training_service._generated import training_service_pb2 as pb
from training_service.api.caller import project_of
from training_service.api.convert.jobs import STATUSES
from training_service.api.convert.times import moment

_STATES = {status: {s for s in JobState if STATUSES[s] == status} for status in STATUSES.values()}
_DEFAULT_PAGE, _LARGEST_PAGE = 50, 1000
_LONGEST_ID = 18  # digits; ids are shorter


def page_of(caller: Caller, message: pb.ListTrainingJobsRequest) -> tuple[JobFilter, int, int | None]:
    """Return the filter, the size of the page, and a bound: the page has only jobs with lower ids.

    The bound is None if all ids are allowed. Raises InvalidField if a field of the message is invalid.
    """
    if not 0 <= message.page_size <= _LARGEST_PAGE:
        raise InvalidField("page_size", f"{message.page_size} is not allowed; allowed: 0 to {_LARGEST_PAGE}")
    if message.page_token and not (message.page_token.isascii() and message.page_token.isdigit()):
        raise InvalidField(
            "page_token", f"{quoted(message.page_token)} is not allowed; send the next_page_token of a page"
        )
    try:
        states = frozenset[JobState]().union(*(_STATES[status] for status in message.statuses))
    except KeyError as error:
        allowed = ", ".join(pb.TrainingStatus.keys())
        raise InvalidField(
            "statuses", f"{error} is not a TrainingStatus; allowed: {allowed} (0 to {max(_STATES)})"
        ) from error
    if message.all_projects and message.project:
        raise InvalidField("project", f"{quoted(message.project)} is not allowed with all_projects")
    if message.mine and message.submitted_by:
        raise InvalidField("submitted_by", f"{quoted(message.submitted_by)} is not allowed with mine")
    if message.before_job < 0:
        raise InvalidField("before_job", f"{message.before_job} is not allowed; send the id of a job, or 0")
    tags = checked_count("tags", checked_tags("tags", message.tags))
    project = project_of("project", message.project) if message.project else caller.default_project
    where = JobFilter(
        states,
        message.name_prefix,
        message.algorithm,
        caller.name if message.mine else message.submitted_by,
        None if message.all_projects else frozenset({project}),
        frozenset(tags),
        *(
            moment(field, getattr(message, field)) if message.HasField(field) else None
            for field in ("submitted_since", "submitted_before")
        ),
    )
    bounds = [_id_of(message.page_token)] if message.page_token else []
    if message.before_job:
        bounds.append(message.before_job)
    before = min(bounds, default=None)
    return where, message.page_size or _DEFAULT_PAGE, before


def _id_of(digits: str) -> int:
    """Return the number with these digits.

    For _LONGEST_ID digits or more, return a number above all ids: int() would refuse more than 4,300 digits.
    """
    significant = digits.lstrip("0") or "0"
    return int(significant) if len(significant) < _LONGEST_ID else 10**_LONGEST_ID
