"""Python environments of the examples for frameworks other than PyTorch."""

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@cache
def python_of(example: str) -> str:
    """Return the path of Python in the example's environment. Create the environment first if necessary."""
    subprocess.run([ROOT / "scripts" / "install-frameworks", example], check=True)
    return str(ROOT / ".venv" / "frameworks" / example / "bin" / "python")
