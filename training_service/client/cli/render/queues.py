"""Queues as text."""

from collections.abc import Iterable, Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from training_service._generated.catalog_service_pb2 import Queue, QueueQuota
from training_service.client.cli.render import words


def name(found: Queue) -> str:
    """Return only the name of the queue."""
    return words.printable(found.name)


def queue(found: Queue) -> str:
    """Return a line with the columns of a queue, separated by tabs."""
    return "\t".join(map(words.printable, _columns(found)))


def queues_table(found: Iterable[Queue]) -> RenderableType:
    """Return a table of queues."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for title in ("QUEUE", "FROM", "VERSION", "PARENT", "WEIGHT", "JOBS", "LIMITS", "QUOTAS"):
        table.add_column(title)
    for each in found:
        table.add_row(*(Text(words.printable(column)) for column in _columns(each)))
    return table


def _columns(found: Queue) -> list[str]:
    source, problem = found.source, found.source.problem
    return [
        found.name,
        source.origin,
        str(source.version or "-"),
        found.parent or "-",
        f"{found.weight:.6g}",
        "default" if found.is_default else "yes" if found.takes_jobs else "no",
        " ".join(_limits(found)) or "-",
        f"cannot be used: {problem}" if problem else " ".join(map(_quota, found.quotas)) or "-",
    ]


def _limits(found: Queue) -> Iterator[str]:
    if found.HasField("max_running"):
        yield f"running={found.max_running}"
    if found.HasField("max_queued"):
        yield f"queued={found.max_queued}"
    if found.max_priority:
        yield f"priority={found.max_priority}"
    rules = found.preemption
    if rules.HasField("by_priority"):
        yield f"preempts-by-priority={_yes(rules.by_priority)}"
    if rules.HasField("reclaim"):
        yield f"reclaims={_yes(rules.reclaim)}"
    if rules.HasField("min_runtime"):
        yield f"min-runtime={rules.min_runtime.ToSeconds()}s"
    if rules.HasField("max_preemptions"):
        yield f"preemptions={rules.max_preemptions}"
    if rules.protected:
        yield f"protected={rules.protected}"
    if rules.HasField("resize_period"):
        yield f"resize-period={rules.resize_period.ToSeconds()}s"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _quota(quota: QueueQuota) -> str:
    borrow = f",borrow={quota.borrow}" if quota.HasField("borrow") else ""
    lend = f",lend={quota.lend}" if quota.HasField("lend") else ""
    return f"{quota.flavor}/{quota.resource}={quota.nominal}{borrow}{lend}"
