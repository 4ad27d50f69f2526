"""The service's own log: one line a record, for people or for machines, with what it is about.

That is the job and its attempt for work on a job, and the request id for what is done within a call.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from job_tracker.common import log_context
from job_tracker.common.printable import printable
from training_service.api.interceptors import request_id
from training_service.settings import LoggingSettings


class _Console(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s %(about)s%(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        about = " ".join(f"{name}={value!s:.8}" for name, value in _about().items())
        record.about = f"[{about}] " if about else ""
        record.message = printable(record.message)
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        # The lines of a traceback begin as no record does: what a tenant sent may be in them.
        return "\n    | ".join(printable(line) for line in super().format(record).splitlines())


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        content = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            **_about(),
            "message": printable(record.getMessage()),
        }
        if record.exc_info:
            content["exception"] = self.formatException(record.exc_info)
        return json.dumps(content)


def _about() -> dict[str, Any]:
    """What is being logged is about, as far as that is known: records are formatted where they are made."""
    facts: dict[str, Any] = {}
    if subject := log_context.subject.get():
        facts = {"job": subject.job_id, **({"attempt": subject.attempt} if subject.attempt else {})}
    if identity := request_id.get():
        facts["request_id"] = identity
    return facts


def set_up(settings: LoggingSettings) -> None:
    """Log to standard error from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if settings.format == "json" else _Console())
    logging.basicConfig(level=settings.level, handlers=[handler], force=True)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    # Neither format has these, and every call that changes something logs a line.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
