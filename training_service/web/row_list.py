"""A list of jobs as a stream of events: first all rows, then the rows that change, come or go."""

from collections.abc import Iterator, Mapping
from typing import Final

from training_service.web.shared import Version, digest_of, version

_EMPTY: Final = '<tr class="empty"><td colspan="11">No jobs match.</td></tr>\n'


class RowList:
    """One version of a list, and the event that changes an earlier version into it.

    Viewers of the same list share this object.
    """

    def __init__(self, rows: Mapping[int, str]) -> None:
        """`rows` has the HTML of each row by the id of its job, the newest job first."""
        self.rows = rows
        self._text = whole(rows)
        self.digest = digest_of(self._text)
        self._after: tuple[str, bytes] = ("", b"")
        """The digest of an earlier version, and the event that changes it into this one."""

    def event_after(self, before: "RowList | None") -> bytes:
        """Return the event that changes the version `before` into this one.

        `before` is None if the browser shows another list, or no list. The event then has all rows.
        """
        wanted = before.digest if before is not None else ""
        if self._after[0] != wanted or not self._after[1]:
            self._after = (wanted, self._made_after(before).event)
        return self._after[1]

    def _made_after(self, before: "RowList | None") -> Version:
        if before is None or not before.rows or not self.rows:
            return version("rows", self._text)
        text = "".join(_changes(before.rows, self.rows))
        if len(text) >= len(self._text):
            return version("rows", self._text)
        return version("changes", text, self.digest)


def whole(rows: Mapping[int, str]) -> str:
    """Return the HTML of all rows."""
    return "".join(rows.values()) or _EMPTY


def _changes(before: Mapping[int, str], after: Mapping[int, str]) -> Iterator[str]:
    """Yield the HTML of each change, for htmx, which applies the changes in this order.

    A new row is inserted after the row above it. By then, the page has the row above.
    """
    for job_id in before.keys() - after.keys():
        yield f'<template><tr id="row-{job_id}" hx-swap-oob="delete"></tr></template>\n'
    above = "afterbegin:#rows"
    for job_id, text in after.items():
        if job_id not in before:
            yield f'<template><tbody hx-swap-oob="{above}">{text}</tbody></template>\n'
        elif text != before[job_id]:
            changed = text.replace("<tr ", '<tr hx-swap-oob="true" ', 1)
            yield f"<template>{changed}</template>\n"
        above = f"afterend:#row-{job_id}"
