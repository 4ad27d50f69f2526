"""The filter of a list of jobs, as it is written in a URL."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from job_tracker.common.printable import quoted
from job_tracker.domain.caller import Caller
from job_tracker.domain.errors import InvalidField
from job_tracker.domain.job import JobState
from job_tracker.domain.tags import checked_count, checked_tags
from job_tracker.store.jobs import JobFilter
from training_service.api.caller import project_of

PAGE: Final = 50
LARGEST_PAGE: Final = 200
_LONGEST: Final = 200
_TEXTS: Final = ("project", "algorithm", "name", "by")
_TIMES: Final = ("since", "until")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The values of the filter form above a list of jobs, and the page that is shown."""

    states: tuple[JobState, ...] = ()
    texts: Mapping[str, str]
    tags: tuple[str, ...] = ()
    times: Mapping[str, str]
    before: int | None = None
    size: int = PAGE

    def where(self, caller: Caller) -> JobFilter:
        """Return the filter for the list of jobs that this form asks for.

        In `by=me`, `me` stands for the caller's name. If the form names no project, the filter is for all
        projects of the service, and Jobs.list restricts it to those in which the caller has a role. Raises
        InvalidField if the project or a time is not valid.
        """
        texts = self.texts
        return JobFilter(
            frozenset(self.states),
            texts["name"],
            texts["algorithm"],
            caller.name if texts["by"] == "me" else texts["by"],
            frozenset({project_of("project", texts["project"])}) if texts["project"] else None,
            frozenset(self.tags),
            *(_moment(name, self.times[name]) for name in _TIMES),
        )

    def in_form(self, name: str) -> str:
        """Return the time `name` ("since" or "until") in UTC, in the format of its input field.

        It is "" if the time is not set. Raises InvalidField if the text is not a time.
        """
        moment = _moment(name, self.times[name])
        return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M") if moment else ""

    def pairs(self) -> list[tuple[str, str]]:
        """Return the names and values of the form's fields; fields with their default are left out."""
        pairs = [("state", str(state)) for state in self.states]
        pairs += [(name, text) for name, text in self.texts.items() if text]
        pairs += [("tag", tag) for tag in self.tags]
        pairs += [(name, text) for name, text in self.times.items() if text]
        if self.size != PAGE:
            pairs.append(("size", str(self.size)))
        return pairs

    def query(self, *, before: int | None = None) -> str:
        """Return the filter as the query of a URL.

        With `before`, the list begins with the newest matching job whose id is below `before`.
        """
        pairs = self.pairs()
        if before is not None:
            pairs.append(("before", str(before)))
        return urlencode(pairs)

    @property
    def is_narrow(self) -> bool:
        """Return whether any field of the filter differs from its default."""
        return bool(self.query())


def wanted(query: QueryParams) -> Wanted:
    """Read the query of a URL. Raises InvalidField if a value is not allowed."""
    try:
        states = tuple(dict.fromkeys(JobState(text) for text in query.getlist("state") if text))
    except ValueError:
        [first, *_] = [text for text in query.getlist("state") if text and text not in set(JobState)]
        allowed = ", ".join(JobState)
        raise InvalidField("state", f"{quoted(first)} is not a state; allowed: {allowed}") from None
    tags = [tag for text in query.getlist("tag") for tag in text.replace(",", " ").split()]
    before = _number("before", query.get("before", ""), 1, 10**18)
    return Wanted(
        states=states,
        texts={name: _text(name, query.get(name, "")) for name in _TEXTS},
        tags=checked_count("tag", checked_tags("tag", tags)),
        times={name: _text(name, query.get(name, "")) for name in _TIMES},
        before=before,
        size=_number("size", query.get("size", ""), 1, LARGEST_PAGE) or PAGE,
    )


def _text(name: str, text: str) -> str:
    text = text.strip()
    if len(text) > _LONGEST or not text.isprintable():
        raise InvalidField(
            name, f"{quoted(text)} is not allowed; use at most {_LONGEST} printable characters"
        )
    return text


def _number(name: str, text: str, least: int, most: int) -> int | None:
    if not text:
        return None
    digits = text.isascii() and text.isdecimal() and len(text) < 20
    if not digits or not least <= int(text) <= most:
        raise InvalidField(name, f"{quoted(text)} is not allowed; allowed: {least} to {most}")
    return int(text)


def _moment(name: str, text: str) -> datetime | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text.removesuffix(" UTC"))
    except ValueError:
        raise InvalidField(
            name, f"{quoted(text)} is not a time; write it as 2026-11-24 12:00, in UTC unless it has a zone"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
