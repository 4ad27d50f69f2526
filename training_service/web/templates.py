"""Renders templates. All values are escaped, and an unknown variable is an error."""

from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from job_tracker.scheduling.reasons import SENTENCES
from training_service.web import showing
from training_service.web.files import url_of


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "time": showing.time,
        "duration": showing.duration,
        "size": showing.size,
        "number": showing.number,
        "metric": lambda value, name: showing.metric(name, value),
        "prose": showing.prose,
        "place_in_log": lambda moment: f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}000Z",
        "moment": lambda seconds: datetime.fromtimestamp(seconds, UTC),
        "query": lambda pairs: urlencode([(name, value) for name, value in pairs if value], doseq=True),
    }
    made.globals |= {"url_of": url_of, "share": showing.share, "sentences": SENTENCES}
    return made


def render(template: str, /, **values: Any) -> str:
    """Return the text of a template."""
    return _environment().get_template(template).render(**values)
