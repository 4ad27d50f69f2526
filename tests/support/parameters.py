"""The parameters of the tests' programs, declared as in a configuration."""

from collections.abc import Iterable

OF_PROGRAM = ("RUN_SECONDS", "EXIT_CODE", "FAIL_RANK", "PRINT", "RECORD", "UNTIL_FILE")
"""The parameters that support/program.py reads. The fake backend reads all except RECORD and UNTIL_FILE."""


def declared(names: Iterable[str] = OF_PROGRAM) -> str:
    """Return a TOML line of an algorithm's table that declares parameters with any text as value."""
    return f"parameters = {{ {', '.join(f'{name} = {{}}' for name in names)} }}"
