"""Parses KEY=VALUE options."""

from collections.abc import Iterable

import typer


def parsed(assignments: Iterable[str], option: str) -> dict[str, str]:
    """Parse strings of the form KEY=VALUE. The value is everything after the first `=`.

    Raises BadParameter with the option's name for a missing `=` or key and for a repeated key.
    """
    values: dict[str, str] = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"'{text}' is not KEY=VALUE", param_hint=option)
        if key in values:
            raise typer.BadParameter(f"'{key}' is given twice", param_hint=option)
        values[key] = value
    return values
