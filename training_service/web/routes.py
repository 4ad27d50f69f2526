"""The addresses of all pages."""

from typing import Final

from training_service.web.pages import account, jobs
from training_service.web.site import Page

LIST: Final = "ListTrainingJobs"
GET: Final = "GetTrainingStatus"
CANCEL: Final = "CancelTraining"

PAGES: Final = (
    Page("/login", account.login, is_public=True),
    Page("/login", account.log_in, changes=True, is_public=True),
    Page("/logout", account.log_out, changes=True, is_public=True),
    Page("/", jobs.home),
    Page("/jobs", jobs.table, (LIST,)),
    Page("/jobs/live", jobs.live, (LIST,)),
    Page("/jobs/cancel", jobs.cancel, (CANCEL,), changes=True),
)
