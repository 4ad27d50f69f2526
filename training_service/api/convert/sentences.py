"""The sentences of the status message: the state of a job, and the reason for it."""

import math
from datetime import UTC, datetime

from job_tracker.backends.shared.log_ends import line_of_cause
from job_tracker.common.printable import printable, without_secrets
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.job import Job, JobState
from job_tracker.jobs import JobView
from job_tracker.reports.lines import is_report
from job_tracker.scheduling.estimates import Basis
from job_tracker.scheduling.mirror import Outlook
from job_tracker.scheduling.model import Reason
from job_tracker.scheduling.reasons import SENTENCES

_LONGEST_LAST_LINE = 200  # characters


def message_of(view: JobView) -> str:
    """Return the sentences about the state of a job, for people."""
    job = view.job
    if job.ending is not None and not job.state.is_terminal:
        if job.ending.state is JobState.BACKOFF:
            return f"Attempt {_of_attempts(job)} failed, and its group is being stopped. {_why(job)}"
        if job.interrupted:
            return f"{job.interrupted} The group is being stopped."
        return f"Ending as {job.ending.state}: the service waits until the group has ended."
    match job.state:
        case JobState.QUEUED:
            before = f"Queueing, there are {view.position} training jobs waiting before this."
            why = f" {job.interrupted}" if job.interrupted else ""
            return before + why + _outlook(view.outlook)
        case JobState.BACKOFF:
            return f"Attempt {_of_attempts(job)} failed; the next one follows after a pause. {_why(job)}"
        case JobState.LAUNCHING:
            return f"Launching {_instances(job)}.{_waiting(job)}"
        case JobState.RUNNING:
            return f"Training on {_instances(job)}.{_waiting(job)}"
        case JobState.SUCCEEDED:
            return f"Training succeeded{_where_the_model_is(job)}."
        case JobState.CANCELLED:
            return "Cancelled on request."
        case JobState.FAILED:
            if not job.diagnosis:
                return "Training failed."
            tries = f" Given up after {job.counted_attempts} attempts." if job.counted_attempts > 1 else ""
            return f"{_what_happened(job.diagnosis)} {job.diagnosis.resolution}{tries}"


def _outlook(outlook: Outlook | None) -> str:
    """Return sentences on why a queued job waits, and when it may start.

    The text is empty if there is no outlook, or if the scheduler has not decided about the job yet.
    """
    if outlook is None or outlook.reason is Reason.PENDING:
        return ""
    why = f" {SENTENCES[outlook.reason]}"
    if outlook.reason is Reason.DELEGATED:
        return why
    if outlook.estimate is None:
        never = outlook.reason in (Reason.LOST_CAPACITY, Reason.MAX_RUNNING)
        return why + (
            " It cannot start with the capacity and the queues as they are."
            if never
            else " Its start cannot be predicted yet."
        )
    half, most = _minute(outlook.estimate.median), _minute(outlook.estimate.high)
    if half is None or most is None:
        return why
    basis = " Some run times are assumed." if outlook.estimate.basis is Basis.ASSUMED else ""
    return f"{why} It may start at about {half}, and in nine of ten cases before {most} (UTC).{basis}"


def _minute(at: float) -> str | None:
    """Return the Unix time as text, rounded up to a minute; None if no datetime can be so late."""
    try:
        return datetime.fromtimestamp(math.ceil(at / 60) * 60, UTC).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError, OSError):
        return None


def _where_the_model_is(job: Job) -> str:
    match job.has_model:
        case True:
            return f"; the model is at {job.model_uri}"
        case False:
            where = f"{job.model_uri} (MODEL_URI of the master)"
            return f", but it has written no model: there is no file at {where}"
        case None:
            return f"; its model, if it has written one, is at {job.model_uri}"


def _why(job: Job) -> str:
    return _what_happened(job.last_failure) if job.last_failure else ""


def _what_happened(why: Diagnosis) -> str:
    """Return the summary and the cause of a diagnosis.

    If the cause is unknown, return the summary and the line of the evidence that most likely names the cause,
    usually the last line. The line is left out if the attempt has stalled, or if the summary has it already.
    """
    if why.cause:
        return f'{why.summary} Cause: "{why.cause}".'
    if why.category is Category.STALLED:  # the summary has the line of code at which the rank stands
        return why.summary
    last = line_of_cause("\n".join(line for line in why.detail.splitlines() if not is_report(line.strip())))
    if not last or last in why.summary:
        return why.summary
    shortened = last if len(last) <= _LONGEST_LAST_LINE else f"{last[:_LONGEST_LAST_LINE]} …"
    return f'{why.summary} Last line: "{printable(without_secrets(shortened))}".'


def _of_attempts(job: Job) -> str:
    return f"{job.attempt} of {job.max_attempts}"


def _waiting(job: Job) -> str:
    """Return a sentence on why the job waits; "" if no reason is known.

    The sentence has the first of these that is known: the reason why the launch waits, the note of the
    cluster's own queue, the first note of a rank.
    """
    if job.waits_for:
        return f" It waits: {job.waits_for}."
    if job.is_gated and job.gate_note:
        return f" {job.gate_note.removesuffix('.')}."
    return next((f" Rank {rank.rank}: {rank.note.removesuffix('.')}." for rank in job.ranks if rank.note), "")


def _instances(job: Job) -> str:
    count = job.instances
    return f"{count} instance{'s' if count > 1 else ''}, attempt {job.attempt}"
