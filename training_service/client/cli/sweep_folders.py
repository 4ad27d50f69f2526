"""Creates the folder of a new sweep from a file and options, or finds the folder of an existing sweep."""

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import typer

from training_service.client.sweeps import folder as folders
from training_service.client.sweeps.methods import method_of, pruner_of
from training_service.client.sweeps.settings import checked


def create(
    file: Path | None, folder: Path | None, given: Mapping[str, Any], address: str, project: Callable[[], str]
) -> Path:
    """Create the folder of a new sweep, and return it. Options in `given` override the file.

    `project` returns the project of the sweep's jobs.

    Raises BadParameter or InvalidRequest, which name the wrong setting, before the folder is created. Raises
    BadParameter if the folder cannot be created, and FailedPrecondition if it already has a sweep.
    """
    document = {"name": file.stem, **_read(file)} if file else {}
    for key, value in without_empty(given).items():
        table = document.get(key)
        document[key] = {**table, **value} if isinstance(table, dict) and isinstance(value, dict) else value
    settings = checked(document)
    # If the sweep needs Optuna but it is missing, these calls raise an error before the folder is created.
    method_of(settings)
    pruner_of(settings)
    path = folder or _default_folder(file, settings.name)
    try:
        folders.create(path, settings, address, project())
    except OSError as error:
        raise typer.BadParameter(
            f"'{path}' cannot be used as the sweep's folder: {error.strerror}", param_hint="--folder"
        ) from error
    return path


def find(what: Path | None, folder: Path | None, given: dict[str, Any]) -> Path:
    """Return the folder of an existing sweep.

    `what` is this folder, or the sweep's file. If `what` is a file, the result is `folder`, or by default the
    folder that a new sweep of this file gets. If `what` is None, the result is `folder`. Raises BadParameter
    if settings are `given`, or if there is neither `what` nor `folder`.
    """
    if given:
        raise typer.BadParameter(
            f"the settings of an existing sweep cannot be changed; omit {', '.join(given)}"
        )
    if what is not None and not what.is_file():
        return what
    if folder is None and what is None:
        raise typer.BadParameter("give the folder of the sweep", param_hint="FOLDER")
    return folder or _default_folder(what, "")


def _default_folder(file: Path | None, name: str) -> Path:
    return Path(f"{file.stem if file else name}.sweep")


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise typer.BadParameter(f"'{file}' cannot be read: {error.strerror}", param_hint="FILE") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"'{file}' is not valid TOML: {error}", param_hint="FILE") from error


def without_empty(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values without those that are None, and without empty tables, at all levels."""
    inner = {key: without_empty(v) if isinstance(v, dict) else v for key, v in values.items()}
    return {key: value for key, value in inner.items() if value is not None and value != {}}
