"""The global options, and the client and output made from them."""

from dataclasses import dataclass
from functools import cached_property

import typer

from training_service.client.channel import address_or_default
from training_service.client.cli.output import Output
from training_service.client.sync import TrainingClient


@dataclass
class Session:
    """The global options of one run of trainctl."""

    address: str
    json: bool

    def client(self) -> TrainingClient:
        """Create a client. The caller closes it."""
        return TrainingClient(self.address)

    @cached_property
    def output(self) -> Output:
        """The output for results."""
        return Output(json=self.json)

    def command(self, words: str) -> str:
        """Return a trainctl command for the same service, to suggest to the user."""
        is_default = self.address == address_or_default(None)
        return f"trainctl {words}" if is_default else f"trainctl -a {self.address} {words}"


def session_of(context: typer.Context) -> Session:
    """Return the session of the running command."""
    session = context.find_object(Session)
    assert session is not None, "the root callback creates it before a command runs"
    return session
