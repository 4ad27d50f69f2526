"""What the commands share: the global options, and the client and output made from them."""

from dataclasses import dataclass
from functools import cached_property

import typer

from training_service.client.channel import address_or_default
from training_service.client.cli.output import Output
from training_service.client.sync import TrainingClient


@dataclass
class Session:
    """One run of trainctl: its global options."""

    address: str
    json: bool

    def client(self) -> TrainingClient:
        """Make a client, which the caller closes."""
        return TrainingClient(self.address)

    @cached_property
    def output(self) -> Output:
        """Where the results go."""
        return Output(json=self.json)

    def command(self, words: str) -> str:
        """A trainctl command to suggest: it goes to the same service as this one."""
        elsewhere = self.address != address_or_default(None)
        return f"trainctl -a {self.address} {words}" if elsewhere else f"trainctl {words}"


def session_of(context: typer.Context) -> Session:
    """The session that the command runs in."""
    session = context.find_object(Session)
    assert session is not None, "the root callback makes it before any command runs"
    return session
