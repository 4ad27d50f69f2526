"""Explains the validation errors of pydantic models to people."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr, Tag, ValidationError

from job_tracker.common.printable import quoted

_SUBJECT = re.compile(r"^(Input|Value|String|Tuple|List|Set|Frozenset|Dictionary) should ")

_DURATION = 'a duration: a number of seconds, or ISO 8601 such as "PT30S", "PT2H" or "P30D"'
_KINDS = {
    "model_type": "a table",
    "dict_type": "a table",
    "list_type": "a list",
    "tuple_type": "a list",
    "time_delta_type": _DURATION,
    "time_delta_parsing": _DURATION,
}
"""The allowed values by type of error, for errors whose messages in pydantic use terms of Python."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One refused value: its path from the top of the model, and a reason, which may quote the value."""

    path: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}: {self.reason}" if self.path else self.reason


def problems(error: ValidationError, model: Any) -> Iterator[Problem]:
    """Return the problems of a document that was validated as `model`.

    The reason of a problem says what is allowed. If the refused value is a number or a text, the reason also
    contains the value; a text is quoted and cut to one short line. But the value is left out if its field
    holds a SecretStr, has `secret` in its path, or is not in `model`.
    """
    return (_problem(details, model) for details in error.errors(include_url=False))


def explain(error: Exception, model: Any = None) -> str:
    """Explain an error in one line.

    With `model`, the refused values are added to the explanation of a ValidationError; see `problems`.
    """
    if isinstance(error, ValidationError):
        return "; ".join(dict.fromkeys(map(str, problems(error, model))))
    return str(error)


def _problem(details: Any, model: Any) -> Problem:
    path, kind, parent = [], model, None
    for part in details["loc"]:
        if part == "[key]":  # this is how pydantic marks a refused key; the path already has the key
            kind = str
            continue
        parent, (kind, is_tag) = kind, _member(kind, part)
        if not is_tag:
            path.append(quoted(str(part))[1:-1])
    if details["type"] == "extra_forbidden":
        known = ", ".join(_bare(parent).model_fields) if _is_model(parent) else ""
        return Problem(tuple(path), f"unknown name; allowed: {known}" if known else "unknown name")
    is_secret = kind is None or "secret" in ".".join(path).lower() or _holds_secret(kind)
    return Problem(tuple(path), _reason(details, None if is_secret else details["input"]))


def _reason(details: Any, value: Any) -> str:
    if details["type"] == "missing":
        return "a value is required"
    if details["type"] in _KINDS:
        message = f"it must be {_KINDS[details['type']]}"
    else:
        message = _SUBJECT.sub("it must ", details["msg"].removeprefix("Value error, "))
        message = message.replace(" after validation", "")
    if not isinstance(value, str | int | float):
        return message
    shown = quoted(value) if isinstance(value, str) else str(value)
    quotes_value = details["type"] == "value_error" and shown in message
    return message if quotes_value else f"{shown} is not allowed: {message}"


def _member(kind: Any, part: str | int) -> tuple[Any, bool]:
    """Return the type that `part` selects in a value of type `kind`, and whether `part` is a tag.

    `part` is one part of the path (`loc`) of a pydantic error: a name, an index, or the tag of a union's
    member. For a tag, the type is that of the member. An unknown type is None.
    """
    kind = _bare(kind)
    if _is_model(kind):
        field = kind.model_fields.get(part)
        return field.annotation if field else None, False
    members = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        for member in members:
            if Tag(str(part)) in getattr(member, "__metadata__", ()):
                return member, True
    return members[-1 if isinstance(part, str) else 0] if members else None, False


def _bare(kind: Any) -> Any:
    """Return the type without annotations and without None."""
    members = [each for each in get_args(kind) if each is not NoneType]
    if get_origin(kind) is Annotated or (get_origin(kind) in (Union, UnionType) and len(members) == 1):
        return _bare(members[0])
    return kind


def _is_model(kind: Any) -> bool:
    kind = _bare(kind)
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _holds_secret(kind: Any) -> bool:
    kind = _bare(kind)
    if _is_model(kind):
        return any(_holds_secret(field.annotation) for field in kind.model_fields.values())
    return kind is SecretStr or any(map(_holds_secret, get_args(kind)))
