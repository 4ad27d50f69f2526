"""The service's own log: records as text or JSON, with their context.

A record is one line; in the text format, a traceback adds further lines. The context is the job and its
attempt during work on a job, and the request id during a call.
"""

import json
import logging
import sys
import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from job_tracker.common import log_context
from job_tracker.common.printable import printable
from training_service.settings import LoggingSettings

GRPC_LOGGER = "grpc._cython.cygrpc"


class _Console(logging.Formatter):
    def __init__(self) -> None:
        super().__init__()
        self._second = lru_cache(1)(lambda second: time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second)))

    def format(self, record: logging.LogRecord) -> str:
        second, fraction = divmod(record.created, 1)
        about = " ".join(f"{name}={value!s:.8}" for name, value in _context().items())
        line = (
            f"{self._second(second)},{int(fraction * 1000):03d} {record.levelname:<7} {record.name} "
            f"{f'[{about}] ' if about else ''}{printable(record.getMessage())}"
        )
        if not record.exc_info:
            return line
        # Mark the lines of a traceback: they may contain text from users that looks like a record.
        trace = self.formatException(record.exc_info).splitlines()
        return "\n    | ".join([line, *map(printable, trace)])


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        content = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            **_context(),
            "message": printable(record.getMessage()),
        }
        if record.exc_info:
            content["exception"] = self.formatException(record.exc_info)
        return json.dumps(content)


def _context() -> dict[str, Any]:
    """Return the known parts of the context.

    The context is that of the current task, since the task that logs a record also formats it.
    """
    facts: dict[str, Any] = {}
    if subject := log_context.subject.get():
        facts = {"job": subject.job_id, **({"attempt": subject.attempt} if subject.attempt else {})}
    if identity := log_context.request_id.get():
        facts["request_id"] = identity
    return facts


def quotes_no_metadata(record: logging.LogRecord) -> bool:
    """Return whether gRPC's record may be logged; see logging.Filter.

    gRPC logs metadata that is not UTF-8, with a traceback. With these records, any stranger could fill the
    log, and the log would show a token that is followed by an invalid character. The call itself is logged
    like all others.
    """
    return not str(record.msg).startswith("Invalid encoding")


def set_up(settings: LoggingSettings) -> None:
    """Set up logging: records go to standard error from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if settings.format == "json" else _Console())
    logging.basicConfig(level=settings.level, handlers=[handler], force=True)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    logging.getLogger(GRPC_LOGGER).addFilter(quotes_no_metadata)
    # Every call that changes something logs a line, so do not spend time on facts that neither format shows.
    logging._srcfile = None  # "Optimization" in the logging HOWTO: records without file and line
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
