"""Loads settings: the command line overrides the environment, which overrides the file."""

import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_settings import EnvSettingsSource

from job_tracker.backends.registry import BrokenPlugin
from job_tracker.common.validation import Problem, problems
from training_service.settings import ENVIRONMENT_PREFIX, Settings, settings_model
from training_service.settings.protection import unprotected

# Variables that have the prefix but are not settings.
_OTHER_VARIABLES = frozenset(
    ENVIRONMENT_PREFIX + name
    for name in ("CONFIG", "ADDRESS", "CA", "CERT", "KEY", "SERVER_NAME", "TOKEN", "TOKEN_FILE")
)


class SettingsError(Exception):
    """The configuration is invalid. The message has one line for each problem, with its source."""


def load(file: Path | None = None, flags: Mapping[str, Any] | None = None) -> Settings:
    """Return the effective settings.

    A value comes from the first source that has it: `flags` (nested by group), the environment, the file.

    Raises SettingsError with a line for each bad setting: its source, its name and the reason.
    """
    try:
        model = settings_model()
    except BrokenPlugin as error:
        raise SettingsError(str(error)) from error
    sources: dict[str, Mapping[str, Any]] = {
        "command line": flags or {},
        "environment": _from_environment(),
        str(file): _from_file(file) if file else {},
    }
    merged: dict[str, Any] = {}
    for values in reversed(sources.values()):
        merged = _merged(merged, values)
    try:
        settings = model(**merged)
    except ValidationError as error:
        raise _refused(problems(error, model), sources) from error
    if found := [*unprotected(settings)]:
        raise _refused(found, sources)
    return settings


def _from_file(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise SettingsError(f"{file}: not valid TOML ({reason})") from error


def _from_environment() -> dict[str, Any]:
    for name in os.environ:
        group = name.removeprefix(ENVIRONMENT_PREFIX).partition("__")[0].lower()
        ours = name.startswith(ENVIRONMENT_PREFIX) and name not in _OTHER_VARIABLES
        if ours and group not in settings_model().model_fields:
            raise SettingsError(
                f"environment: {name}: unknown setting {group!r}; "
                f"allowed: {', '.join(settings_model().model_fields)}"
            )
    try:
        values = EnvSettingsSource(settings_model())()
    except Exception as error:
        raise SettingsError(f"environment: {error}; write lists and whole groups as JSON") from error
    for name in os.environ:
        if name.startswith(ENVIRONMENT_PREFIX):
            _restore_case(values, name.removeprefix(ENVIRONMENT_PREFIX).split("__"))
    return values


def _restore_case(values: dict[str, Any], path: list[str]) -> None:
    """Restore the case of keys of tables (variables, algorithms), which pydantic has changed to lower case.

    Only names of settings ignore case.
    """
    kind: Any = settings_model()
    for part in path:
        key = part.lower()
        if key not in values:
            return
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            if key not in kind.model_fields:
                return  # the validation reports the unknown name
            kind = kind.model_fields[key].annotation
        else:
            kind, values[part] = get_args(kind)[1], values.pop(key)
            key = part
        is_table = get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, BaseModel))
        if not is_table or not isinstance(values[key], dict):
            return
        values = values[key]


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        both = isinstance(value, Mapping) and isinstance(under, Mapping)
        merged[key] = _merged(under, value) if both else value  # type: ignore[arg-type]
    return merged


def _refused(found: Iterable[Problem], sources: Mapping[str, Mapping[str, Any]]) -> SettingsError:
    return SettingsError("\n".join(_line(problem, sources) for problem in found))


def _line(problem: Problem, sources: Mapping[str, Mapping[str, Any]]) -> str:
    source = next((name for name, values in sources.items() if _holds(values, problem.path)), "settings")
    return f"{source}: {problem}"


def _holds(values: Any, path: tuple[str, ...]) -> bool:
    for key in path:
        if not isinstance(values, Mapping):
            return True  # this source has a plain value in place of a table, which is the problem
        if key not in values:
            return False
        values = values[key]
    return bool(path)
