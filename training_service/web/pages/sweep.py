"""Many jobs that differ in parameters, as parallel coordinates and as a table."""

from starlette.responses import Response

from training_service.web.filters import LARGEST_PAGE, wanted
from training_service.web.parallel import parallel_of
from training_service.web.visits import Visit


async def sweep(visit: Visit) -> Response:
    """Show the newest jobs that match the filter. The filter is the same as in the list of jobs."""
    filtered = wanted(visit.request.query_params)
    page = await visit.jobs.list(
        visit.who, filtered.where(visit.who), limit=LARGEST_PAGE, before=filtered.before
    )
    return visit.page(
        "sweep.html",
        wanted=filtered,
        parallel=parallel_of([view.job for view in page.jobs], visit.query.get("metric", "")),
        has_more=page.next_before is not None,
    )
