"""Pages of lists whose entries have names."""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from job_tracker.domain.errors import InvalidField

_DEFAULT_PAGE: Final = 100
_LARGEST_PAGE: Final = 1000
_LARGEST_ANSWER: Final = 2 << 20
"""The largest size of a page with several entries, in bytes: many clients read at most 4 MiB."""

T = TypeVar("T")
M = TypeVar("M", bound=Message)


def page_size(size: int) -> int:
    """Return the size of the page that a request asks for; if that is 0, the default.

    Raises InvalidField if `size` is negative or too large.
    """
    if not 0 <= size <= _LARGEST_PAGE:
        raise InvalidField("page_size", f"{size} is not allowed; allowed: 0 to {_LARGEST_PAGE}")
    return size or _DEFAULT_PAGE


def page_of(
    entries: Iterable[T], name_of: Callable[[T], str], request: Any, converted: Callable[[T], M]
) -> tuple[list[M], str]:
    """Return the messages of a page, and the token of the next page; "" if there is no next page.

    The token is the last name on this page. `entries` are ordered by name. `request` has `page_size` and
    `page_token`. Raises InvalidField if the page size is not allowed.
    """
    limit, size = page_size(request.page_size), 0
    found: list[M] = []
    last = ""
    for entry in entries:
        name = name_of(entry)
        if name <= request.page_token:
            continue
        message = converted(entry)
        size += message.ByteSize()
        if found and (len(found) == limit or size > _LARGEST_ANSWER):
            return found, last
        found.append(message)
        last = name
    return found, ""
