"""The command line `training-service`."""

import asyncio
import json
import os
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from training_service.settings import Settings
from training_service.settings.loading import SettingsError, load

# gRPC reads this variable when it is imported below. Without the variable, each failed handshake would add a
# line in gRPC's own format to the log, and strangers could fill the log.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

app = typer.Typer(
    name="training-service",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", envvar="TRAINING_SERVICE_CONFIG", help="TOML file with settings."),
]
_Address = Annotated[
    str | None, typer.Option(help="Listening address, HOST:PORT. [default: 127.0.0.1:51001]")
]
_Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure", help="Allow other machines to connect without TLS and, by default, without tokens."
    ),
]
_DataDir = Annotated[Path | None, typer.Option(help="Folder of the job store and of process files.")]
_Capacity = Annotated[int | None, typer.Option(help="Instances that may run at the same time. [default: 8]")]
_Backend = Annotated[
    str | None, typer.Option(help="Backend: process, docker, kubernetes or fake. [default: process]")
]
_Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="KEY=VALUE",
        help="Any setting, such as -s jobs.stop_grace=30. Lists and tables are JSON.",
    ),
]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"training-service {metadata.version('training-service')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[  # the callback of the option prints the version
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Runs training jobs on groups of machines."""


@app.command()
def serve(
    config: _Config = None,
    set_: _Set = None,
    address: _Address = None,
    insecure: _Insecure = False,
    data_dir: _DataDir = None,
    capacity: _Capacity = None,
    backend: _Backend = None,
) -> None:
    """Start the service. Every option has a default."""
    flags = _flags_of_serve(set_, address, insecure, data_dir, capacity, backend)
    settings = _loaded(config, flags)
    # Imported here, since the server's libraries are slow to import.
    from job_tracker.domain.errors import BackendRefused, StoreRefused, StoreUnavailable
    from training_service.catalog_opening import ConfigurationFile
    from training_service.main import run
    from training_service.serving import CannotServe

    try:
        run(settings, ConfigurationFile(config, partial(load, config, flags)) if config else None)
    except (CannotServe, StoreRefused, StoreUnavailable, BackendRefused) as error:
        _fail(str(error))


@app.command()
def health(
    config: _Config = None,
    address: Annotated[
        str | None, typer.Option(help="Address of the service. [default: the configured one]")
    ] = None,
) -> None:
    """Check a running service with a gRPC health check, for probes. Exit code 0 means that it serves."""
    settings = _settings(config, None, {}) if config or not address else None
    from training_service.health_check import NotHealthy, ask

    try:
        state = ask(settings, address)
    except NotHealthy as error:
        _fail(str(error))
    typer.echo(state)
    raise typer.Exit(0 if state == "SERVING" else 1)


@app.command()
def backup(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="The new file.")],
    config: _Config = None,
    set_: _Set = None,
    data_dir: _DataDir = None,
) -> None:
    """Copy the job store to a file. The service may be running. See docs/upgrading.md."""
    settings = _settings(config, set_, {"storage.data_dir": data_dir})
    from job_tracker.domain.errors import StoreRefused
    from training_service.backups import back_up

    try:
        back_up(settings, target)
    except StoreRefused as error:
        _fail(str(error))
    typer.echo(f"backed up to {target}")


@app.command()
def restore(
    source: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The backup. With Redis, leave it out.")
    ] = None,
    config: _Config = None,
    set_: _Set = None,
    data_dir: _DataDir = None,
    backend: _Backend = None,
) -> None:
    """Prepare a stopped service to use a backup at its next start. See docs/upgrading.md."""
    settings = _settings(config, set_, {"storage.data_dir": data_dir, "backend": backend})
    from job_tracker.domain.errors import TrackerError
    from training_service import backups

    os.umask(0o077)
    try:
        typer.echo(asyncio.run(backups.restore(settings, source)))
    except TrackerError as error:
        _fail(str(error))


@app.command()
def config(
    config: _Config = None,
    set_: _Set = None,
    address: _Address = None,
    insecure: _Insecure = False,
    data_dir: _DataDir = None,
    capacity: _Capacity = None,
    backend: _Backend = None,
) -> None:
    """Print the settings that `serve` would use with these options, as JSON; secrets are hidden."""
    flags = _flags_of_serve(set_, address, insecure, data_dir, capacity, backend)
    typer.echo(json.dumps(_loaded(config, flags).model_dump(mode="json"), indent=2))


def _flags_of_serve(
    assignments: list[str] | None,
    address: str | None,
    insecure: bool,
    data_dir: Path | None,
    capacity: int | None,
    backend: str | None,
) -> dict[str, Any]:
    named = {
        "server.address": address,
        "server.insecure": insecure or None,
        "storage.data_dir": data_dir,
        "scheduling.capacity": capacity,
        "backend": backend,
    }
    return _flags(assignments, named)


def _settings(file: Path | None, assignments: list[str] | None, named: dict[str, Any]) -> Settings:
    return _loaded(file, _flags(assignments, named))


def _flags(assignments: list[str] | None, named: dict[str, Any]) -> dict[str, Any]:
    flags: dict[str, Any] = {}
    for assignment in assignments or ():
        key, equals, value = assignment.partition("=")
        if not equals:
            _fail(f"--set {assignment}: not allowed; write KEY=VALUE, such as scheduling.capacity=4")
        _assign(flags, key, _value(assignment, value))
    for key, value in named.items():
        if value is not None:
            _assign(flags, key, value)
    return flags


def _loaded(file: Path | None, flags: dict[str, Any]) -> Settings:
    try:
        return load(file, flags)
    except SettingsError as error:
        _fail(str(error))


def _value(assignment: str, text: str) -> Any:
    if text[:1] not in ("[", "{"):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        _fail(f"--set {assignment}: not valid JSON ({error}); write lists and tables as JSON")


def _assign(flags: dict[str, Any], key: str, value: Any) -> None:
    *groups, name = key.split(".")
    for group in groups:
        below = flags.setdefault(group, {})
        flags = below if isinstance(below, dict) else {}
    flags[name] = value


def _fail(message: str) -> NoReturn:
    for line in message.splitlines():
        typer.echo(f"training-service: {line}", err=True)
    raise typer.Exit(2)
