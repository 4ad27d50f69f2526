"""Which sweep is meant: one to begin, by a file and options, or one that was begun, by its folder."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from training_service.client.sweeps import folder as folders
from training_service.client.sweeps.methods import method_of, pruner_of
from training_service.client.sweeps.settings import checked


def begun(file: Path | None, folder: Path | None, given: Mapping[str, Any], address: str) -> Path:
    """The folder of a new sweep by what was given, on the command line over the file.

    Raises BadParameter, InvalidRequest, naming what is wrong with that; then there is no folder.
    """
    document = {"name": file.stem, **_read(file)} if file else {}
    for key, value in without_nothing(given).items():
        table = document.get(key)
        document[key] = {**table, **value} if isinstance(table, dict) and isinstance(value, dict) else value
    settings = checked(document)
    # What needs Optuna says so now, while nothing has begun.
    method_of(settings)
    pruner_of(settings)
    path = folder or _usual_folder(file, settings.name)
    try:
        folders.begin(path, settings, address)
    except OSError as error:
        raise typer.BadParameter(
            f"'{path}' cannot be a sweep's folder: {error.strerror}", param_hint="--folder"
        ) from error
    return path


def found(what: Path | None, folder: Path | None, given: dict[str, Any]) -> Path:
    """The folder of a sweep that was begun, by itself or by the file that it was begun with."""
    if given:
        raise typer.BadParameter(f"a sweep that was begun keeps its settings; not {', '.join(given)}")
    if what is not None and not what.is_file():
        return what
    if folder is None and what is None:
        raise typer.BadParameter("say which sweep: its folder", param_hint="FOLDER")
    return folder or _usual_folder(what, "")


def _usual_folder(file: Path | None, name: str) -> Path:
    return Path(f"{file.stem if file else name}.sweep")


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise typer.BadParameter(f"'{file}' cannot be read: {error.strerror}", param_hint="FILE") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"'{file}' is not valid TOML: {error}", param_hint="FILE") from error


def without_nothing(values: Mapping[str, Any]) -> dict[str, Any]:
    """What was given: neither None nor empty."""
    inner = {key: without_nothing(v) if isinstance(v, dict) else v for key, v in values.items()}
    return {key: value for key, value in inner.items() if value is not None and value != {}}
