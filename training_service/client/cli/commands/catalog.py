"""trainctl algorithms, algorithm set, algorithm rm, datasets, dataset set and dataset rm."""

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from training_service.client.cli.render import catalog as render
from training_service.client.cli.render.words import printable
from training_service.client.cli.session import session_of
from training_service.client.errors import InvalidRequest

_LARGEST_FILE = 1 << 20

algorithm_app = typer.Typer(no_args_is_help=True, help="Declare and remove algorithms.")
dataset_app = typer.Typer(no_args_is_help=True, help="Declare and remove datasets.")

Name = Annotated[str, typer.Argument(metavar="[NAME]", help="Show only the entry with this name.")]
File = Annotated[
    Path, typer.Argument(metavar="FILE.toml", help="A file with tables as in the configuration.")
]


def algorithms(context: typer.Context, name: Name = "") -> None:
    """List the algorithms that jobs of the --project can name, or show one with its parameters.

    In a pipe, each algorithm is one line: name, origin (shipped, file or api), project, version, framework,
    names of parameters, and description, separated by tabs. For one algorithm, each parameter is one line:
    name, type, default, allowed values, and description.
    """
    session = session_of(context)
    with session.client() as client:
        found = client.catalog.algorithms(session.project, name)
        if not name:
            session.output.show_all(found, render.algorithm, render.algorithms_table, render.name)
            return
        for each in found:
            session.output.show(each, render.parameters, render.algorithm_page, render.name)


def datasets(context: typer.Context, name: Name = "") -> None:
    """List the datasets that jobs of the --project can name, or show one.

    In a pipe, each dataset is one line: id, origin (shipped, file or api), project, version, URI, and files,
    separated by tabs.
    """
    session = session_of(context)
    with session.client() as client:
        found = client.catalog.datasets(session.project, name)
        session.output.show_all(found, render.dataset, render.datasets_table, render.name)


@algorithm_app.command("set")
def set_algorithm(context: typer.Context, file: File) -> None:
    """Declare the algorithms in the tables algorithms.NAME of a file, or change them.

    With --project, they are for jobs of that project, whose admins may do this. Without --project, they are
    for jobs of all projects, and only operators may do this. Jobs that were accepted before do not change.
    """
    session = session_of(context)
    tables = tables_of(file, "algorithms")
    with session.client() as client:
        for name, definition in tables.items():
            with about(f"algorithms.{name}"):
                made = client.catalog.set_algorithm(name, definition, project=session.project)
            session.output.show(made, render.algorithm, render.algorithm, render.name)


@algorithm_app.command("rm")
def remove_algorithm(
    context: typer.Context, name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.")]
) -> None:
    """Remove an algorithm that was declared for the --project or, without --project, for all projects."""
    session = session_of(context)
    with session.client() as client:
        client.catalog.remove_algorithm(name, project=session.project)
    session.output.note(f"removed algorithm {name}; jobs that were accepted before do not change")


@dataset_app.command("set")
def set_dataset(context: typer.Context, file: File) -> None:
    """Declare the datasets in the tables datasets.NAME of a file, or change them.

    With --project, they are for jobs of that project, whose admins may do this. Without --project, they are
    for jobs of all projects, and only operators may do this.
    """
    session = session_of(context)
    tables = tables_of(file, "datasets")
    with session.client() as client:
        for name, definition in tables.items():
            with about(f"datasets.{name}"):
                made = client.catalog.set_dataset(name, definition, project=session.project)
            session.output.show(made, render.dataset, render.dataset, render.name)


@dataset_app.command("rm")
def remove_dataset(
    context: typer.Context, name: Annotated[str, typer.Argument(metavar="ID", help="Its id.")]
) -> None:
    """Remove a dataset that was declared for the --project or, without --project, for all projects."""
    session = session_of(context)
    with session.client() as client:
        client.catalog.remove_dataset(name, project=session.project)
    session.output.note(f"removed dataset {name}; its data stays")


@contextmanager
def about(table: str) -> Iterator[None]:
    """Add the table's name to an InvalidRequest of the block, because a file may have several tables."""
    try:
        yield
    except InvalidRequest as error:
        raise InvalidRequest(f"{printable(table)}: {error}") from None


def tables_of(file: Path, kind: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the tables KIND.NAME of a TOML file, by name.

    Raises InvalidRequest if the file cannot be read, has no such table, or has other content.
    """
    try:
        with file.open("rb") as opened:
            content = opened.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise InvalidRequest(f"{file}: cannot be read ({error.strerror})") from None
    if len(content) > _LARGEST_FILE:
        raise InvalidRequest(f"{file}: is larger than {_LARGEST_FILE >> 20} MiB")
    try:
        values = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{file}: not valid TOML ({error})") from None
    tables: Any = {"": values}
    for part in ("", *kind.split(".")):
        inner = tables.pop(part, None)
        if tables:
            raise InvalidRequest(
                f"{file}: {next(iter(tables))}: not allowed; allowed: tables {kind}.NAME. Put the rest into "
                "another file"
            )
        tables = inner if isinstance(inner, dict) else {}
    found: Mapping[str, Mapping[str, Any]] = tables
    if not tables or not all(isinstance(v, dict) for v in tables.values()):
        raise InvalidRequest(f"{file}: has no table {kind}.NAME")
    return found
