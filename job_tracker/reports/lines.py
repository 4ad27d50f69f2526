"""Reports as printed lines, for programs in any language.

A report is one line on standard output: a marker, and a JSON object. Every key is optional, except `name` and
`uri` of an artifact:

    ::progress:: {"step": 12, "total_steps": 360, "epoch": 2, "total_epochs": 15, "metrics": {"loss": 0.41}}
    ::artifact:: {"name": "model.pt", "uri": "s3://models/7/model.pt", "kind": "model", "size": 1024}

The value of a metric that is not finite is written as "NaN", "Infinity" or "-Infinity", or as one of these
words without quotes, as Python does. The words `nan` and `inf`, which C writes, are accepted, too.
"""

import json
import re
from dataclasses import replace
from datetime import datetime
from typing import Any

from job_tracker.domain.group import MASTER_RANK
from job_tracker.reports.report import Report, ReportReader

PROGRESS = "::progress:: "
ARTIFACT = "::artifact:: "


_OF_C = re.compile(r"(?<=[:,\[\s])([+-]?(?:nan|inf))(?=\s{0,8}[,}\]])", re.IGNORECASE)
"""A number that is not finite, as C's printf writes it."""


def is_report(line: str) -> bool:
    """Return whether the line has the marker of a report. The report may still be malformed."""
    return line.startswith((PROGRESS, ARTIFACT))


def parse(line: str, at: datetime, step: int) -> Report | None:
    """Return the report in a line that was printed at `at`; None if there is none, or it is malformed.

    `step` is the last known step, for metrics in a line without a step.
    """
    if not is_report(line):
        return None
    marker = PROGRESS if line.startswith(PROGRESS) else ARTIFACT
    text = line[len(marker) :]
    try:
        try:
            content = json.loads(text)
        except ValueError:
            content = json.loads(_OF_C.sub(r'"\1"', text))
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
    return replace(reader.report(), at=at, rank=MASTER_RANK)


def _take_metrics(reader: ReportReader, metrics: Any, step: int) -> None:
    for name, value in metrics.items() if isinstance(metrics, dict) else ():
        reader.point(name, value, step)
