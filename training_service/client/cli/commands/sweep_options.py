"""Parses KEY=SPACE options of `trainctl sweep`: A,B,C or LOW..HIGH, LOW..HIGH:log, LOW..HIGH:step=S."""

import re
from collections.abc import Iterable
from typing import Any

import typer

from training_service.client.cli.commands.assignments import parsed
from training_service.client.requests import as_text

_RANGE = re.compile(r"(?P<low>[^,]+?)\.\.(?P<high>[^,:]+)(?::(?P<log>log)|:step=(?P<step>.+))?")


def parsed_space(texts: Iterable[str], option: str) -> dict[str, Any]:
    """Parse KEY=SPACE options into a table like `space` in a sweep's TOML file.

    Raises BadParameter, which names the option, if a text is not valid.
    """
    return {name: _axis(name, text, option) for name, text in parsed(texts, option).items()}


def _axis(name: str, text: str, option: str) -> Any:
    if ".." not in text:
        return [_choice(choice) for choice in text.split(",") if choice]
    found = _RANGE.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        numbers = {key: _number(found[key]) for key in ("low", "high", "step") if found[key]}
    except ValueError:
        raise typer.BadParameter(
            f"'{name}={text}' must be choices (A,B,C) or a range (LOW..HIGH, LOW..HIGH:log or "
            "LOW..HIGH:step=S)",
            param_hint=option,
        ) from None
    return {**numbers, "log": True} if found["log"] else numbers


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _choice(text: str) -> str | int | float:
    """Return the number in the text if it would be sent as the same text; otherwise, return the text.

    For example, 1e-3 stays text, because the number would be sent as 0.001.
    """
    try:
        number = _number(text)
    except ValueError:
        return text
    return number if as_text(number) == text else text
