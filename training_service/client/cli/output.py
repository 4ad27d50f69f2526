"""Where results go: JSON lines for programs, plain lines for pipes, pictures for terminals.

A command hands over a message with a way to write it as a line and a way to draw it; which of them
is used is decided here, once.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import NoReturn, Protocol, TextIO, TypeVar

from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message
from rich.console import Console, RenderableType
from rich.live import Live

from training_service.client.cli.render.words import printable


class Entry(Protocol):
    """A result that is not a message of the proto, to be written in the same forms."""

    def as_json(self) -> str:
        """One line of JSON."""
        ...


M = TypeVar("M", bound=Message | Entry)


class Form(Enum):
    """How results are written."""

    JSON = auto()
    PLAIN = auto()
    TERMINAL = auto()


class Output:
    """Standard output in one of its forms."""

    def __init__(self, *, json: bool) -> None:
        self.form = Form.JSON if json else Form.TERMINAL if _is_terminal(sys.stdout) else Form.PLAIN
        # A terminal may be too simple for pictures, and still obey what it is sent.
        self.on_terminal = self.form is Form.TERMINAL or sys.stdout.isatty()
        # Text of others is never read as markup, emoji codes or something to highlight.
        self._console = _Console(
            force_terminal=self.form is Form.TERMINAL, markup=False, emoji=False, highlight=False
        )

    def show(self, message: M, line: Callable[[M], str], drawn: Callable[[M], RenderableType]) -> None:
        """Writes one message."""
        if self.form is Form.TERMINAL:
            self._console.print(drawn(message))
        else:
            self._write(message, line)

    def show_all(
        self,
        messages: Iterable[M],
        line: Callable[[M], str],
        drawn: Callable[[Iterable[M]], RenderableType],
    ) -> None:
        """Writes many messages: a table, or a line each as they arrive."""
        if self.form is Form.TERMINAL:
            self._console.print(drawn(messages))
        else:
            for message in messages:
                self._write(message, line)

    @contextmanager
    def updating(
        self, line: Callable[[M], str], drawn: Callable[[M], RenderableType]
    ) -> Iterator[Callable[[M], None]]:
        """Gives a function that writes a message in place of the one before.

        A terminal shows the last one and draws it again several times a second, so that clocks go on;
        plain output has a line for each whose line differs from that before.
        """
        if self.form is Form.TERMINAL:
            yield from self._drawing(drawn)
        elif self.form is Form.PLAIN:
            yield self._write_changes(line)
        else:
            yield lambda message: self._write(message, line)

    def show_text(self, message: M, text: str) -> None:
        """Writes the text of a message exactly as it is; in JSON, the whole message."""
        if self.form is Form.JSON:
            self._write(message, as_json)
        else:
            self.pass_through(text)

    def pass_through(self, text: str) -> None:
        """Writes text as it is and at once."""
        sys.stdout.write(text)
        sys.stdout.flush()

    @contextmanager
    def drawing(self, drawn: Callable[[], RenderableType]) -> Iterator[None]:
        """Within it a terminal shows this picture, drawn again several times a second, and gone
        with the block's end; others show nothing.
        """
        if self.form is not Form.TERMINAL:
            yield
            return
        with self._live(drawn, transient=True):
            yield

    def _drawing(self, drawn: Callable[[M], RenderableType]) -> Iterator[Callable[[M], None]]:
        latest: list[M] = []
        with self._live(lambda: drawn(latest[-1]) if latest else "") as live:

            def update(message: M) -> None:
                latest[:] = [message]
                live.refresh()

            yield update

    def _live(self, drawn: Callable[[], RenderableType], *, transient: bool = False) -> Live:
        return Live(get_renderable=drawn, console=self._console, refresh_per_second=4, transient=transient)

    def _write_changes(self, line: Callable[[M], str]) -> Callable[[M], None]:
        last = ""

        def update(message: M) -> None:
            nonlocal last
            if (text := line(message)) != last:
                self.pass_through(text + "\n")
                last = text

        return update

    def _write(self, message: M, line: Callable[[M], str]) -> None:
        self.pass_through((as_json(message) if self.form is Form.JSON else line(message)) + "\n")


def as_json(message: Message | Entry) -> str:
    """A message as one line of JSON, with the names of the proto; zero values are written out.

    As everywhere in protobuf's JSON, 64-bit integers are strings and times are RFC 3339.
    """
    if not isinstance(message, Message):
        return message.as_json()
    return MessageToJson(
        message, indent=None, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def remark(text: str) -> None:
    """Tells people one thing, on one line of standard error."""
    sys.stderr.write(f"trainctl: {printable(text)}\n")
    sys.stderr.flush()


class Remarks(logging.Handler):
    """Passes what the client logs, as that it lost the service and tries again, on as remarks."""

    def emit(self, record: logging.LogRecord) -> None:
        """Tells people one record."""
        remark(record.getMessage())


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        """Leaves the decision to trainctl, where rich would end the program with 1."""
        raise BrokenPipeError


def _is_terminal(stream: TextIO) -> bool:
    """Whether to draw. Rich's own rule also heeds FORCE_COLOR, which CI systems set for everything:
    `$(trainctl submit …)` would get a picture there.
    """
    if os.environ.get("TERM") in ("dumb", "unknown"):
        return False
    return stream.isatty() or os.environ.get("TTY_COMPATIBLE") == "1"
