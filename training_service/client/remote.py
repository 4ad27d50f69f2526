"""A decorator that runs a function as a job, with the files of its folder. See docs/code.md."""

import functools
import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, overload

from training_service.client.errors import InvalidRequest
from training_service.client.run import function_runner
from training_service.client.run.working_tree import LocalFile, WorkingTree, read_file, read_folder
from training_service.client.sync import TrainingClient

P = ParamSpec("P")
R = TypeVar("R")

RUNNER = "_run_function.py"
"""The name of the file that calls the function. It is uploaded with the files of the folder."""


class Remote(Generic[P, R]):
    """A function that can also run as a job. A plain call runs it in this process."""

    def __init__(
        self, function: Callable[P, R], folder: str | Path | None, options: Mapping[str, Any]
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._folder = folder
        self._options = options

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function in this process."""
        return self._function(*args, **kwargs)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> int:
        """Upload the folder, and queue a job that calls the function with the arguments. Return the job's id.

        Raises InvalidRequest if the function is not defined at the top of a module that can be imported, if
        the folder does not contain this module, if the arguments do not fit the function, if JSON cannot
        represent the arguments unchanged, or if `submit` is called in the job. Raises the errors of
        `TrainingClient.run`, too.
        """
        main = getattr(sys.modules["__main__"], "__file__", None) or ""
        if Path(main).name == RUNNER:
            raise InvalidRequest(
                "submit was called in the job: call it below `if __name__ == '__main__':`, and not when the "
                "module is imported"
            )
        module, root = _module_of(self._function)
        command = [
            *("python", RUNNER, f"{module}:{self._function.__name__}"),
            _as_json(self._function, args, kwargs),
        ]
        folder = Path(self._folder or root).resolve()
        if not root.is_relative_to(folder):
            raise InvalidRequest(
                f"folder: {folder} does not contain {root}, the folder of the function's module"
            )
        if folder != root:
            module = ".".join([*root.relative_to(folder).parts, module])
            command[2] = f"{module}:{self._function.__name__}"
        files = _with_runner(read_folder(folder))
        with TrainingClient() as client:
            return client.run(command, folder=files, **{"name": self._function.__name__, **self._options})


@overload
def remote(function: Callable[P, R], /) -> Remote[P, R]: ...


@overload
def remote(
    *, folder: str | Path | None = None, **options: Any
) -> Callable[[Callable[P, R]], Remote[P, R]]: ...


def remote(
    function: Callable[P, R] | None = None, /, *, folder: str | Path | None = None, **options: Any
) -> Remote[P, R] | Callable[[Callable[P, R]], Remote[P, R]]:
    """Make a function that runs as a job when its `submit` is called.

        @remote(instances=3)
        def train(lr: float) -> None: ...

        train.submit(lr=0.1)

    `folder` is uploaded; by default, it is the folder from which the function's module is imported. The
    options are those of `TrainingClient.run`. Without options, `@remote` is enough. Raises InvalidRequest for
    an unknown option.
    """
    known = inspect.signature(TrainingClient.run).parameters.keys() - {"self", "command", "folder"}
    if unknown := sorted(options.keys() - known):
        raise InvalidRequest(
            f"{unknown[0]} is not an option of remote; allowed: folder, {', '.join(sorted(known))}"
        )
    if function is not None:
        return Remote(function, folder, options)
    return lambda decorated: Remote(decorated, folder, options)


def _module_of(function: Callable[..., Any]) -> tuple[str, Path]:
    """Return the name of the function's module, and the folder from which it can be imported by this name."""
    name = getattr(function, "__qualname__", "")
    if not inspect.isfunction(function) or not name.isidentifier():
        raise InvalidRequest(
            f"{name or repr(function)} cannot run as a job: use a function that is defined by `def` at the "
            "top of a module, not a lambda, a method or a nested function"
        )
    module = sys.modules.get(function.__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None or not Path(file).is_file():
        raise InvalidRequest(
            f"{name} is not in a file, as in a notebook or an interactive session; write it to a module, and "
            "import it from there"
        )
    spec = getattr(module, "__spec__", None)
    path = Path(file).resolve()
    full = spec.name if spec is not None else path.stem  # a program that is run by its path has no spec
    if full == "__main__" or full.endswith(".__main__"):
        raise InvalidRequest(
            f"{name} is in {path}, which cannot be imported as a module; move {name} to a module that can"
        )
    parts = full.split(".")
    return full, path.parents[len(parts) - (path.name != "__init__.py")]


def _as_json(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise InvalidRequest(f"arguments of {function.__name__}: {error}") from None
    for name, value in bound.arguments.items():
        try:
            text = json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidRequest(f"argument {name} of {function.__name__} is not JSON: {error}") from None
        if json.loads(text) != (list(value) if _is_variadic(function, name) else value):
            raise InvalidRequest(
                f"argument {name} of {function.__name__} would change as JSON: use numbers, strings, lists "
                "and dictionaries with strings as keys"
            )
    return json.dumps({"args": list(args), "kwargs": dict(kwargs)}, allow_nan=False)


def _with_runner(files: WorkingTree) -> WorkingTree:
    if any(file.path == RUNNER for file in files.files):
        raise InvalidRequest(
            f"the folder has a file {RUNNER}, but remote adds a file with this name; rename it"
        )
    runner: LocalFile = read_file(RUNNER, Path(function_runner.__file__))
    every = sorted([*files.files, runner], key=lambda file: file.path.encode())
    return replace(files, files=every)


def _is_variadic(function: Callable[..., Any], name: str) -> bool:
    return inspect.signature(function).parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
