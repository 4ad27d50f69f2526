"""The comparison of several jobs: their parameters with marked differences, and their curves."""

from collections.abc import Sequence

from starlette.responses import Response

from job_tracker.domain.errors import InvalidField
from job_tracker.jobs import JobView
from training_service.web.pages.jobs import job_ids, row_of
from training_service.web.parallel import parallel_of
from training_service.web.visits import Visit

MOST = 20


async def chosen_jobs(visit: Visit) -> Sequence[JobView]:
    """Return the jobs that the URL names.

    Raises InvalidField if the URL does not have 1 to MOST ids, and JobNotFound if one of them is unknown.
    """
    texts = [part for text in visit.request.query_params.getlist("job") for part in text.split(",") if part]
    chosen = job_ids(texts)
    if len(chosen) > MOST:
        raise InvalidField("job", f"{len(chosen)} jobs are selected; at most {MOST} are allowed")
    return [await visit.jobs.get(visit.who, job_id) for job_id in chosen]


async def compare(visit: Visit) -> Response:
    """Show the chosen jobs."""
    views = await chosen_jobs(visit)
    values = [
        {
            "algorithm": view.job.spec.algorithm,
            "dataset": f"{view.job.spec.dataset_id} {view.job.spec.dataset_version}".strip(),
            "code version": view.job.spec.code_version,
            "instances": str(view.job.instances),
            **view.job.spec.environment,
            **view.job.spec.parameters,
        }
        for view in views
    ]
    names = list(dict.fromkeys(name for each in values for name in each))
    rows = [(name, [each.get(name, "") for each in values]) for name in names]
    metrics = [view.job.progress.metrics if view.job.progress else {} for view in views]
    measured = sorted({name for each in metrics for name in each})
    jobs = [view.job for view in views]
    return visit.page(
        "compare.html",
        parallel=parallel_of(jobs, visit.query.get("metric", "")),
        rows=[row_of(view) for view in views],
        jobs=jobs,
        job_fields=[("job", job.id) for job in jobs],
        parameters=[(name, found, len(set(found)) > 1) for name, found in rows if any(found)],
        metrics=[(name, [each.get(name) for each in metrics]) for name in measured],
    )
