"""The addresses of all pages."""

from typing import Final

from training_service.web.pages import account, job, jobs, logs, results
from training_service.web.site import Page

LIST: Final = "ListTrainingJobs"
GET: Final = "GetTrainingStatus"
SUBMIT: Final = "Train"
WATCH: Final = "WatchTraining"
METRICS: Final = "GetTrainingMetrics"
LOGS: Final = "GetTrainingLogs"
CANCEL: Final = "CancelTraining"

PAGES: Final = (
    Page("/login", account.login, is_public=True),
    Page("/login", account.log_in, changes=True, is_public=True),
    Page("/logout", account.log_out, changes=True, is_public=True),
    Page("/", jobs.home),
    Page("/jobs", jobs.table, (LIST,)),
    Page("/jobs/live", jobs.live, (LIST,)),
    Page("/jobs/cancel", jobs.cancel, (CANCEL,), changes=True),
    Page("/jobs/{job_id:int}", job.overview, (GET,)),
    Page("/jobs/{job_id:int}/live", job.live, (WATCH,)),
    Page("/jobs/{job_id:int}/cancel", job.cancel, (CANCEL,), changes=True),
    Page("/jobs/{job_id:int}/rerun", job.rerun, (SUBMIT,), changes=True),
    Page("/jobs/{job_id:int}/artifacts", results.artifacts, ("GetTrainingArtifacts",)),
    Page("/jobs/{job_id:int}/artifacts/{name:path}", results.fetch, ("FetchTrainingArtifact",)),
    Page("/jobs/{job_id:int}/curves", results.curves, (GET,)),
    Page("/jobs/{job_id:int}/series", results.series, (METRICS,)),
    Page("/jobs/{job_id:int}/fresh", results.fresh, (WATCH,)),
    Page("/jobs/{job_id:int}/logs", logs.page, (LOGS,)),
    Page("/jobs/{job_id:int}/logs/follow", logs.follow, (LOGS,)),
    Page("/jobs/{job_id:int}/logs/text", logs.text, (LOGS,)),
)
