"""Sizes of pages in requests."""

from typing import Final

from job_tracker.domain.errors import InvalidField

_DEFAULT_PAGE: Final = 100
_LARGEST_PAGE: Final = 1000


def page_size(size: int) -> int:
    """Return the number of entries that a page may have. Raises InvalidField."""
    if not 0 <= size <= _LARGEST_PAGE:
        raise InvalidField("page_size", f"{size} is not allowed; allowed: 0 to {_LARGEST_PAGE}")
    return size or _DEFAULT_PAGE
