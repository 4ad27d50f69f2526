"""The addresses of all pages."""

from typing import Final

from training_service.web.pages import (
    account,
    compare,
    exports,
    job,
    jobs,
    logs,
    machines,
    operator,
    queue,
    results,
    submit,
    sweep,
)
from training_service.web.site import Page

LIST: Final = "ListTrainingJobs"
GET: Final = "GetTrainingStatus"
SUBMIT: Final = "Train"
WATCH: Final = "WatchTraining"
METRICS: Final = "GetTrainingMetrics"
LOGS: Final = "GetTrainingLogs"
QUEUE: Final = "GetQueue"
CANCEL: Final = "CancelTraining"

PAGES: Final = (
    Page("/login", account.login, is_public=True),
    Page("/login", account.log_in, is_form=True, is_public=True),
    Page("/logout", account.log_out, is_form=True, is_public=True),
    Page("/", jobs.home),
    Page("/jobs", jobs.table, (LIST,)),
    Page("/jobs/live", jobs.live, (LIST,)),
    Page("/jobs/cancel", jobs.cancel, (CANCEL,), is_form=True),
    Page("/jobs/{job_id:int}", job.overview, (GET,)),
    Page("/jobs/{job_id:int}/live", job.live, (WATCH,)),
    Page("/jobs/{job_id:int}/cancel", job.cancel, (CANCEL,), is_form=True),
    Page("/jobs/{job_id:int}/rerun", job.rerun, (SUBMIT,), is_form=True),
    Page("/jobs/{job_id:int}/artifacts", results.artifacts, ("GetTrainingArtifacts",)),
    Page("/jobs/{job_id:int}/artifacts/{name:path}", results.fetch, ("FetchTrainingArtifact",)),
    Page("/jobs/{job_id:int}/curves", results.curves, (GET,)),
    Page("/jobs/{job_id:int}/series", results.series, (METRICS,)),
    Page("/jobs/{job_id:int}/fresh", results.fresh, (WATCH,)),
    Page("/compare", compare.compare, (LIST,)),
    Page("/sweep", sweep.sweep, (LIST,)),
    Page("/series.csv", exports.table, (METRICS,), takes_tokens=True),
    Page("/series.zip", exports.events, (METRICS,), takes_tokens=True),
    Page("/queue", queue.queue, (QUEUE,)),
    Page("/queue/live", queue.live, (QUEUE,)),
    Page("/machines", machines.machines, ("GetQueueSnapshot",)),
    Page("/submit", submit.form, ("ListAlgorithms",)),
    Page("/submit", submit.submit, (SUBMIT,), is_form=True),
    Page("/submit/lines", submit.lines, ("WhoAmI",), is_form=True),
    Page("/operator", operator.projects, ("ListProjects",)),
    Page("/operator/service", operator.service, ("ListProjects",)),
    Page("/operator/tokens", operator.tokens, ("ListTokens",)),
    Page("/operator/tokens/revoke", operator.revoke, ("RevokeToken",), is_form=True),
    Page("/operator/audit", operator.audit, ("ListAuditEvents",)),
    Page("/jobs/{job_id:int}/logs", logs.page, (LOGS,)),
    Page("/jobs/{job_id:int}/logs/follow", logs.follow, (LOGS,)),
    Page("/jobs/{job_id:int}/logs/text", logs.text, (LOGS,)),
)
