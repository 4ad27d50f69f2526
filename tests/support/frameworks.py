"""Environments of the examples for other frameworks than PyTorch."""

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@cache
def python_of(example: str) -> str:
    """The Python of the example's environment. What is not made yet, or being made, is waited for."""
    subprocess.run([ROOT / "scripts" / "install-frameworks", example], check=True)
    return str(ROOT / ".venv" / "frameworks" / example / "bin" / "python")
