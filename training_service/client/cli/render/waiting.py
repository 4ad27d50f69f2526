"""Renders the reasons why a job waits."""

from collections.abc import Callable, Iterator

from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import RenderableType
from rich.text import Text

from training_service._generated.training_service_pb2 import (
    CapacityHolder,
    ExpectedRun,
    ExplainTrainingResponse,
    GetTrainingStatusResponse,
    StartEstimate,
    TrainingStatus,
)
from training_service.client.cli.render import facts, words
from training_service.client.cli.render.facts import Fact
from training_service.client.cli.render.panels import facts_table


def line(explained: ExplainTrainingResponse, otherwise: Fact | None = None) -> str:
    """Return the explanation as `label: value` lines. Times are in UTC.

    `otherwise` is the fact to show for a job that is not in the queue.
    """
    found = _facts(explained, words.moment, otherwise)
    return "\n".join(f"{label.lower()}: {value}" for label, value in found)


def panel(explained: ExplainTrainingResponse, otherwise: Fact | None = None) -> RenderableType:
    """Return the explanation as a table."""
    found = _facts(explained, words.local_moment, otherwise)
    return facts_table(Text(f"Job {explained.job_id}", style="bold"), found)


def not_queued(status: GetTrainingStatusResponse, more: str) -> Fact:
    """Return the state of a job that is not in the queue, or how it ended. The command `more` shows more."""
    match status.status:
        case TrainingStatus.succeed:
            return "Ended", f"succeeded; see {more}"
        case TrainingStatus.cancelled:
            return "Ended", f"cancelled; see {more}"
        case TrainingStatus.failure:
            known = status.HasField("diagnosis")
            why = facts.reason(status.diagnosis) if known else words.printable(status.message)
            return "Ended", f"failed: {why.removesuffix('.')}; see {more}" if why else f"failed; see {more}"
        case TrainingStatus.running:
            return "Waits", "no: it runs"
        case TrainingStatus.launch:
            return "Waits", "no: it is being launched"
    if status.HasField("next_attempt_at"):
        return "Waits", f"for its next attempt. {words.printable(status.message)}"
    return "Waits", "no: it is not in the queue"


def codes(explained: ExplainTrainingResponse) -> str:
    """Return the codes of the reasons, one per line."""
    return "\n".join(words.printable(reason.code) for reason in explained.reasons)


_NEVER = ("lost_capacity", "max_running")
_BASES = {
    "given": "by the run times that callers gave",
    "learned": "by run times of earlier attempts",
    "assumed": "some run times are assumed",
}
_SOURCES = {"given": "as its caller said", "learned": "as earlier attempts", "deadline": "by its deadline"}


def _start(estimate: StartEstimate, moment: Callable[[Timestamp], str]) -> str:
    basis = _BASES.get(estimate.basis, words.printable(estimate.basis))
    return f"about {moment(estimate.median)}, in nine of ten cases before {moment(estimate.high)} ({basis})"


def _run(run: ExpectedRun) -> str:
    source = _SOURCES.get(run.source, words.printable(run.source))
    median = words.duration(run.median_seconds) if run.median_seconds >= 1 else "less than 1s"
    high = words.duration(max(1.0, run.high_seconds))
    return f"for {median}, in nine of ten cases less than {high} ({source})"


def _holder(holder: CapacityHolder) -> str:
    of = f"project {words.printable(holder.project)}, {words.count(holder.instances, 'instance')}"
    return f"job {holder.job_id} {words.printable(holder.name)} ({of})"


def _facts(
    explained: ExplainTrainingResponse, moment: Callable[[Timestamp], str], otherwise: Fact | None
) -> Iterator[Fact]:
    yield "Job", str(explained.job_id)
    if otherwise is not None:
        yield otherwise
        return
    if not explained.reasons:
        yield "Waits", f"no: it is being stopped. {words.printable(explained.stopped)}"
        return
    yield "Queue", f"{words.printable(explained.queue)}, {words.count(explained.position, 'job')} before it"
    if explained.wanted_flavor:
        yield "Flavor", f"{words.printable(explained.wanted_flavor)}, as it asks"
    if explained.stopped:
        yield "Stopped", words.printable(explained.stopped)
    for reason in explained.reasons:
        yield "Reason", f"{words.printable(reason.code)}: {words.printable(reason.message)}"
    if explained.HasField("promised_start"):
        at = moment(explained.promised_start)
        yield "Promised", f"{at} on {words.printable(explained.flavor)}"
    if explained.HasField("estimate"):
        yield "Start", _start(explained.estimate, moment)
    elif explained.reasons[0].code in _NEVER:
        yield "Start", "never with the capacity and the queues as they are"
    elif explained.reasons[0].code == "room":
        yield "Start", "as soon as the machine of the service has room"
    if explained.moved_because:
        yield "Moved", words.printable(explained.moved_because)
    if explained.reasons[-1].code == "delegated":
        return
    if explained.HasField("expected_run"):
        yield "Runs", _run(explained.expected_run)
    else:
        yield "Runs", "for an unknown time; submit with --expected to say how long"
    for remedy in explained.remedies:
        yield "Remedy", words.printable(remedy.message) + ("" if remedy.is_verified else " (not verified)")
    for holder in explained.stopping:
        yield "Stopping", _holder(holder)
    if explained.other_stopping:
        yield "Stopping", words.count(explained.other_stopping, "other job")
    for holder in explained.holders:
        yield "Held by", _holder(holder)
    if explained.other_holders:
        others = words.count(explained.other_holders, "other job")
        yield "Held by", f"{others} ({words.count(explained.other_instances, 'instance')})"
