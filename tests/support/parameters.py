"""The parameters of the tests' own programs, declared as an operator declares them."""

from collections.abc import Iterable

OF_PROGRAM = ("RUN_SECONDS", "EXIT_CODE", "FAIL_RANK", "PRINT", "RECORD")
"""What support/program.py reads, and the fake backend too, but for RECORD."""


def declared(names: Iterable[str] = OF_PROGRAM) -> str:
    """The line of an algorithm's table, in TOML, that declares parameters of any text."""
    return f"parameters = {{ {', '.join(f'{name} = {{}}' for name in names)} }}"
