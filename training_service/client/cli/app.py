"""The commands, global options and help of trainctl."""

import copy
import inspect
import logging
import sys
from collections.abc import Mapping
from importlib import metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from training_service.client.cli.boundary import errors_reported
from training_service.client.cli.commands import catalog, projects, queues, report_keys, tokens
from training_service.client.cli.commands.annotate import hold, note, release, tag
from training_service.client.cli.commands.artifacts import artifacts, fetch
from training_service.client.cli.commands.audit import audit
from training_service.client.cli.commands.cancel import cancel
from training_service.client.cli.commands.describe import describe
from training_service.client.cli.commands.diff import diff
from training_service.client.cli.commands.listing import list_jobs
from training_service.client.cli.commands.login import login, logout, whoami
from training_service.client.cli.commands.logs import logs
from training_service.client.cli.commands.plan import PlanCommand, plan
from training_service.client.cli.commands.plot import plot
from training_service.client.cli.commands.queue import queue
from training_service.client.cli.commands.rerun import clone, rerun
from training_service.client.cli.commands.rm import rm
from training_service.client.cli.commands.run import SETTINGS as RUN_SETTINGS
from training_service.client.cli.commands.run import run
from training_service.client.cli.commands.scale import scale
from training_service.client.cli.commands.simulate import simulate
from training_service.client.cli.commands.status import status
from training_service.client.cli.commands.stop_service import stop_service
from training_service.client.cli.commands.submit import submit
from training_service.client.cli.commands.sweep import sweep
from training_service.client.cli.commands.wait import wait
from training_service.client.cli.commands.watch import watch
from training_service.client.cli.commands.why import why
from training_service.client.cli.exit_codes import ExitCode
from training_service.client.cli.output import Remarks
from training_service.client.cli.session import Session, session_of
from training_service.client.connection import (
    ADDRESS_VARIABLE,
    CA_VARIABLE,
    CERT_VARIABLE,
    DEFAULT_ADDRESS,
    KEY_VARIABLE,
    PROJECT_VARIABLE,
    SERVER_NAME_VARIABLE,
    SYSTEM_ROOTS,
)

_GLOBAL = ("address", "ca", "cert", "key", "server_name", "project", "json", "quiet")


class Trainctl(TyperGroup):
    """The group of commands. It reports the errors of commands, and adds the global options to each command.

    So both `trainctl --json list` and `trainctl list --json` work.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        options = [option for option in self.params if option.name in _GLOBAL]
        _repeat(options, self.commands)

    def invoke(self, ctx: Any) -> Any:
        """Run a command and report its errors without a traceback, except for bugs."""
        with errors_reported():
            return super().invoke(ctx)


def _repeat(options: list[Any], commands: Mapping[str, Any]) -> None:
    """Add the options to the commands and to the commands of subgroups.

    Also join the lines of the commands' help texts.
    """
    for command in commands.values():
        command.help = _unwrapped(command.help or "")
        command.params += [_repeated(option) for option in options]
        _repeat(options, getattr(command, "commands", {}))


def _unwrapped(text: str) -> str:
    """Join the lines of each paragraph that has no indented lines.

    Without this, the help would keep the line breaks of the source.
    """
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(each if "\n " in each else each.replace("\n", " ") for each in paragraphs)


def _repeated(option: Any) -> Any:
    """Return a copy of a global option for a command.

    A value given after the command replaces a value given before the command.
    """

    def override(context: typer.Context, _parameter: Any, value: Any) -> None:
        if value is not None:
            setattr(session_of(context), option.name, value)

    repeated = copy.copy(option)
    repeated.default, repeated.envvar, repeated.expose_value = None, None, False
    repeated.callback = override
    return repeated


app = typer.Typer(
    name="trainctl",
    cls=Trainctl,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\n".join(["Exit codes:", *(f"{code.value:>5}  {code.meaning}" for code in ExitCode)]),
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"trainctl {metadata.version('training-service')}")
        raise typer.Exit


@app.callback()
def trainctl(
    context: typer.Context,
    address: Annotated[
        str | None,
        typer.Option(
            *("--address", "-a"),
            envvar=ADDRESS_VARIABLE,
            metavar="HOST:PORT",
            help="Address of the service; for several replicas, IP:PORT,IP:PORT. "
            f"[default: {DEFAULT_ADDRESS}]",
        ),
    ] = None,
    ca: Annotated[
        str | None,
        typer.Option(
            envvar=CA_VARIABLE,
            metavar="FILE",
            help="Use TLS, and trust the authorities in this PEM file; "
            f"`{SYSTEM_ROOTS}`: the authorities that gRPC trusts by default.",
        ),
    ] = None,
    cert: Annotated[
        str | None,
        typer.Option(envvar=CERT_VARIABLE, metavar="FILE", help="PEM file with your certificate."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(envvar=KEY_VARIABLE, metavar="FILE", help="PEM file with the key of --cert."),
    ] = None,
    server_name: Annotated[
        str | None,
        typer.Option(
            envvar=SERVER_NAME_VARIABLE,
            metavar="NAME",
            help="Name in the service's certificate, if it is not the host of --address.",
        ),
    ] = None,
    project: Annotated[
        str,
        typer.Option(
            envvar=PROJECT_VARIABLE,
            metavar="NAME",
            help="Project of new jobs and of lists. Default: your default project.",
        ),
    ] = "",
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line, with the field names of the API.")
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", "-q", help="Print only what a script needs, such as ids. Errors are still printed."
        ),
    ] = False,
    version: Annotated[  # noqa: ARG001  # its callback prints it
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Submit training jobs, follow them and read their logs.

    Output is tables and progress bars on a terminal, and plain lines in a pipe.
    """
    # Escape characters that the terminal or locale cannot show. Otherwise, printing them would raise
    # UnicodeEncodeError.
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")
    session = Session(
        address=address,
        ca=ca,
        cert=cert,
        key=key,
        server_name=server_name,
        json=json,
        project=project,
        quiet=quiet,
    )
    logger = logging.getLogger("training_service.client")
    logger.handlers, logger.level = [Remarks(lambda: session.quiet)], logging.INFO
    context.obj = session


for command in (
    *(submit, rerun, clone, status, describe, why, queue, watch, wait, logs, plot, artifacts, fetch, diff),
    *(tag, note, hold, release, cancel, rm, sweep, scale, simulate),
):
    app.command()(command)
app.command(cls=PlanCommand, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})(
    plan
)
app.command(context_settings=RUN_SETTINGS)(run)
app.command("list")(list_jobs)
for command_of_access in (login, logout, whoami):
    app.command()(command_of_access)
app.command()(audit)
app.command()(stop_service)
app.add_typer(tokens.app, name="token")
app.add_typer(projects.app, name="project")
app.add_typer(report_keys.app, name="report-key")
for command_of_catalog in (catalog.algorithms, catalog.datasets):
    app.command()(command_of_catalog)
app.add_typer(catalog.algorithm_app, name="algorithm")
app.add_typer(catalog.dataset_app, name="dataset")
app.add_typer(queues.app, name="queues")
