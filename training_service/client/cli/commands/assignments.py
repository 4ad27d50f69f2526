"""KEY=VALUE on the command line."""

from collections.abc import Iterable

import typer


def parsed(assignments: Iterable[str], option: str) -> dict[str, str]:
    """KEY=VALUE texts as a mapping; the value is all behind the first `=`.

    Raises BadParameter, naming the option, for a text without `=` or without a key, and for a key given
    twice.
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
