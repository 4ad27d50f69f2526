"""Reports in what a program prints: any program in any language can make one.

One line on standard output, a marker and a JSON object of which every key may be left out:

    ::progress:: {"step": 12, "total_steps": 360, "epoch": 2, "total_epochs": 15, "metrics": {"loss": 0.41}}
    ::artifact:: {"name": "model.pt", "uri": "s3://models/7/model.pt", "kind": "model", "size": 1024}
"""

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

from job_tracker.reports.report import Report, ReportReader

PROGRESS = "::progress:: "
ARTIFACT = "::artifact:: "


def is_report(line: str) -> bool:
    """Whether the line claims to be a report; not all that do can be read."""
    return line.startswith((PROGRESS, ARTIFACT))


def parse(line: str, at: datetime, step: int) -> Report | None:
    """What the line, printed at `at`, reports; None if it is no report.

    `step` is the last one, for a line that names none.
    """
    if not is_report(line):
        return None
    marker = PROGRESS if line.startswith(PROGRESS) else ARTIFACT
    try:
        content = json.loads(line[len(marker) :])
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    reader = ReportReader(at)
    if marker == ARTIFACT:
        reader.artifact(content)
    else:
        reader.counts(content)
        _take_metrics(reader, content.get("metrics"), reader.report().counts.get("step", step))
    return replace(reader.report(), at=at)


def _take_metrics(reader: ReportReader, metrics: Any, step: int) -> None:
    for name, value in metrics.items() if isinstance(metrics, dict) else ():
        reader.point(name, value, step)
