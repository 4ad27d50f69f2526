"""Calls a function of a module in the working folder: `python FILE MODULE:FUNCTION ARGUMENTS`.

`remote` uploads this file with the program, because the job's Python may lack training_service. So this file
imports only modules that come with Python. ARGUMENTS is a JSON object with `args` and `kwargs`.
"""

import importlib
import json
import sys
from types import ModuleType
from typing import Any

_NAMES = ("training_service", "training_service.client", "training_service.client.remote")


def main(function: str, arguments: str) -> None:
    """Call the function MODULE:FUNCTION with the arguments, which are JSON."""
    try:
        importlib.import_module(_NAMES[-1])
    except ImportError:
        _add_stand_ins()
    module, _, name = function.partition(":")
    given = json.loads(arguments)
    target = getattr(importlib.import_module(module), name)
    target(*given["args"], **given["kwargs"])


def _add_stand_ins() -> None:
    """Make `from training_service.client.remote import remote` work without the package.

    The stand-in for `remote` returns the function itself, with a `submit` that raises RuntimeError.
    """
    for name in _NAMES:
        made = sys.modules.setdefault(name, ModuleType(name))
        parent, _, own = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], own, made)
    sys.modules[_NAMES[-1]].remote = _remote  # type: ignore[attr-defined]


def _remote(function: Any = None, /, **_: Any) -> Any:
    return _unchanged if function is None else _unchanged(function)


def _unchanged(function: Any) -> Any:
    function.submit = _refuse
    return function


def _refuse(*_: Any, **__: Any) -> Any:
    raise RuntimeError("submit was called in the job: call it below `if __name__ == '__main__':`")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
