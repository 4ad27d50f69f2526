"""The global options, and the client and output made from them."""

import shlex
from dataclasses import dataclass
from functools import cached_property

import typer

from training_service.client.cli.output import Output
from training_service.client.connection import Connection, connection
from training_service.client.sync import TrainingClient

_OF_TLS = ("ca", "cert", "key", "server_name")


@dataclass
class Session:
    """The global options of one run of trainctl."""

    address: str | None
    ca: str | None
    cert: str | None
    key: str | None
    server_name: str | None
    json: bool
    project: str = ""
    quiet: bool = False

    @property
    def connection(self) -> Connection:
        """The connection to the service. Raises InvalidRequest if the configuration file cannot be used."""
        return connection(self.address, **{name: getattr(self, name) for name in _OF_TLS})

    def client(self, token: str | None = None) -> TrainingClient:
        """Create a client, which the caller closes. `token`, if given, replaces the usual token."""
        return TrainingClient(
            self.address, **{name: getattr(self, name) for name in _OF_TLS}, project=self.project, token=token
        )

    @cached_property
    def output(self) -> Output:
        """The output for results."""
        return Output(json=self.json, quiet=self.quiet)

    def command(self, words: str) -> str:
        """Return a trainctl command to suggest to the user: these words, with the options that select the
        session's service.
        """
        return f"{shlex.join(['trainctl', *self._options()])} {words}"

    def _options(self) -> list[str]:
        """Return the global options that select the session's service; none for the default service."""
        mine = self.connection
        options = [] if mine.address == connection().address else ["-a", mine.address]
        default = connection(mine.address)  # the defaults of the TLS options depend on the address
        for name in _OF_TLS:
            if (value := getattr(mine, name)) and value != getattr(default, name):
                options += [f"--{name.replace('_', '-')}", value]
        return options


def session_of(context: typer.Context) -> Session:
    """Return the session of the running command."""
    session = context.find_object(Session)
    assert session is not None, "the root callback creates it before a command runs"
    return session
