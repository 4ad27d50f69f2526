"""Tags and notes of jobs, for people, and for filters of lists. Only the tag HELD affects how a job runs."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from job_tracker.common.printable import quoted
from job_tracker.domain.errors import InvalidField

MAX_TAGS = 16
HELD = "held"
"""The tag of jobs that are not stopped for lack of progress, for example while they are debugged."""
MAX_NOTE = 1000
"""The largest number of characters of a note."""

# Quotes, commas and spaces are not allowed, so that tags can be listed in a line and searched for in stored
# JSON.
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:=@+-]{0,63}")


@dataclass(frozen=True, slots=True)
class Annotation:
    """An unchecked change of a job's tags and note. If `note` is None, the note stays as it is."""

    add_tags: Sequence[str] = ()
    remove_tags: Sequence[str] = ()
    note: str | None = None

    def applied_to(self, tags: tuple[str, ...], note: str) -> tuple[tuple[str, ...], str]:
        """Return the tags and the note after the change. Raises InvalidField if they are not allowed."""
        added = checked_tags("add_tags", self.add_tags)
        left = tuple(sorted({*tags, *added} - {*self.remove_tags}))
        return checked_count("add_tags", left), note if self.note is None else checked_note(self.note)


def checked_tags(field: str, tags: Iterable[str]) -> tuple[str, ...]:
    """Return the tags, sorted, each once. Raises InvalidField for `field` if a tag is not allowed."""
    for tag in (given := list(tags)):
        if not _TAG.fullmatch(tag):
            raise InvalidField(
                field,
                f"{quoted(tag)} is not allowed: use at most 64 of the letters A to Z and a to z, digits and "
                ". _ / : = @ + -, and begin with a letter or digit",
            )
    return tuple(sorted(set(given)))


def checked_count(field: str, tags: tuple[str, ...]) -> tuple[str, ...]:
    """Return the tags. Raises InvalidField for `field` if there are more than MAX_TAGS."""
    if len(tags) > MAX_TAGS:
        raise InvalidField(field, f"makes {len(tags)} tags; a job may have at most {MAX_TAGS}")
    return tags


def checked_note(note: str) -> str:
    """Return the note without surrounding white space. Raises InvalidField if it is not allowed."""
    if len(note) > MAX_NOTE:
        raise InvalidField("note", f"has {len(note)} characters; at most {MAX_NOTE} are allowed")
    note = note.strip()
    if not all(character.isprintable() or character == "\n" for character in note):
        raise InvalidField("note", f"{quoted(note)} is not allowed: use printable characters and line breaks")
    return note
