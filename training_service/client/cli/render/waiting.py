"""Why a job waits."""

from collections.abc import Callable, Iterator

from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import RenderableType
from rich.text import Text

from training_service._generated.training_service_pb2 import ExplainTrainingResponse
from training_service.client.cli.render import words
from training_service.client.cli.render.facts import Fact
from training_service.client.cli.render.panels import facts_table


def line(explained: ExplainTrainingResponse) -> str:
    """Return the explanation as `label: value` lines. Times are in UTC."""
    return "\n".join(f"{label.lower()}: {value}" for label, value in _facts(explained, words.moment))


def panel(explained: ExplainTrainingResponse) -> RenderableType:
    """Return the explanation as a table."""
    return facts_table(Text(f"Job {explained.job_id}", style="bold"), _facts(explained, words.local_moment))


def codes(explained: ExplainTrainingResponse) -> str:
    """Return the codes of the reasons, one per line."""
    return "\n".join(words.printable(reason.code) for reason in explained.reasons)


def _facts(explained: ExplainTrainingResponse, moment: Callable[[Timestamp], str]) -> Iterator[Fact]:
    yield "Job", str(explained.job_id)
    if not explained.reasons:
        yield "Waits", "no: it is not in the queue"
        return
    yield "Queue", f"{words.printable(explained.queue)}, {words.count(explained.position, 'job')} before it"
    for reason in explained.reasons:
        yield "Reason", f"{words.printable(reason.code)}: {words.printable(reason.message)}"
    if explained.HasField("promised_start"):
        at = moment(explained.promised_start)
        yield "Promised", f"{at} on {words.printable(explained.flavor)}"
    if explained.moved_because:
        yield "Moved", words.printable(explained.moved_because)
    for holder in explained.holders:
        of = f"project {words.printable(holder.project)}, {words.count(holder.instances, 'instance')}"
        yield "Held by", f"job {holder.job_id} {words.printable(holder.name)} ({of})"
    if explained.other_holders:
        others = words.count(explained.other_holders, "other job")
        yield "Held by", f"{others} ({words.count(explained.other_instances, 'instance')})"
