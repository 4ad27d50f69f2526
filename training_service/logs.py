"""The service's own log: one line a record, for people or for machines, with the request id."""

import json
import logging
import sys
from datetime import UTC, datetime

from training_service.api.interceptors import request_id
from training_service.settings import LoggingSettings


class _Console(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s [%(request_id).8s] %(message)s")


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        content = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "request_id": getattr(record, "request_id", "-"),
            "message": record.getMessage(),
        }
        if record.exc_info:
            content["exception"] = self.formatException(record.exc_info)
        return json.dumps(content)


def _add_request_id(record: logging.LogRecord) -> bool:
    record.request_id = request_id.get()
    # Whatever a tenant sent stays on its line, and moves no cursor.
    record.msg, record.args = _printable(record.getMessage()), None
    return True


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def set_up(settings: LoggingSettings) -> None:
    """Log to standard error from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if settings.format == "json" else _Console())
    handler.addFilter(_add_request_id)
    logging.basicConfig(level=settings.level, handlers=[handler], force=True)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
