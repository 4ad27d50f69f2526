"""Writes results: JSON lines for programs, plain lines for pipes, tables and progress bars for terminals.

A command passes a message and two functions: `line` formats the message as a line, and `drawn` returns it as
a Rich object. This module chooses between them. With --quiet, it writes only the value that a script needs.
If the command passes a function `brief`, the value is its result. Otherwise, the value is the id of the job
or, if the message has no job, the line.
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
    """A result that is not a protobuf message."""

    def as_json(self) -> str:
        """Return one line of JSON."""
        ...


M = TypeVar("M", bound=Message | Entry)


class Form(Enum):
    """The form in which results are written."""

    JSON = auto()
    PLAIN = auto()
    TERMINAL = auto()
    QUIET = auto()
    """Only the values that a script needs, such as ids."""


class Output:
    """Writes results to standard output in one form."""

    def __init__(self, *, json: bool, quiet: bool = False) -> None:
        """With `quiet`, no notes are written, and results are brief. With `json`, results are never brief."""
        self._quiet = quiet
        if json or quiet:
            self.form = Form.JSON if json else Form.QUIET
        else:
            self.form = Form.TERMINAL if _is_terminal(sys.stdout) else Form.PLAIN
        # A terminal that is too simple for drawing (TERM=dumb) may still obey escape sequences.
        self.on_terminal = self.form is Form.TERMINAL or sys.stdout.isatty()
        # Users' text is never highlighted, or parsed as markup or emoji codes.
        self._console = _Console(
            force_terminal=self.form is Form.TERMINAL, markup=False, emoji=False, highlight=False
        )

    def show(
        self,
        message: M,
        line: Callable[[M], str],
        drawn: Callable[[M], RenderableType],
        brief: Callable[[M], str] | None = None,
    ) -> None:
        """Write one message."""
        if self.form is Form.TERMINAL:
            self._console.print(drawn(message))
        else:
            self._write(message, line, brief)

    def show_all(
        self,
        messages: Iterable[M],
        line: Callable[[M], str],
        drawn: Callable[[Iterable[M]], RenderableType],
        brief: Callable[[M], str] | None = None,
    ) -> None:
        """Write many messages, as a table on a terminal, or line by line as they arrive."""
        if self.form is Form.TERMINAL:
            self._console.print(drawn(messages))
        else:
            for message in messages:
                self._write(message, line, brief)

    @contextmanager
    def updating(
        self, line: Callable[[M], str], drawn: Callable[[M], RenderableType]
    ) -> Iterator[Callable[[M], None]]:
        """Yield a function that shows a message in place of the previous one.

        On a terminal, the latest message is drawn several times a second, so that clocks advance. Plain
        output gets a line for each message whose line differs from the previous one. JSON output gets every
        message.
        With --quiet, nothing is written.
        """
        if self.form is Form.TERMINAL:
            yield from self._drawing(drawn)
        elif self.form is Form.PLAIN:
            yield self._write_changes(line)
        elif self.form is Form.QUIET:
            yield lambda _message: None
        else:
            yield lambda message: self._write(message, line)

    def show_text(self, message: M, text: str) -> None:
        """Write the text of a message unchanged, or the whole message as JSON."""
        if self.form is Form.JSON:
            self._write(message, as_json)
        else:
            self.pass_through(text)

    def pass_through(self, text: str) -> None:
        """Write text unchanged and flush it."""
        sys.stdout.write(text)
        sys.stdout.flush()

    @contextmanager
    def drawing(self, drawn: Callable[[], RenderableType]) -> Iterator[None]:
        """During the block, draw the result of `drawn` on a terminal several times a second.

        Other forms of output show nothing.
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

    def note(self, text: str) -> None:
        """Print one line for people to standard error, unless --quiet is given."""
        if not self._quiet:
            remark(text)

    def _write(self, message: M, line: Callable[[M], str], brief: Callable[[M], str] | None = None) -> None:
        if self.form is Form.QUIET:
            line = brief or _brief(line)
        text = as_json(message) if self.form is Form.JSON else line(message)
        if text:  # it is empty if there is nothing to list
            self.pass_through(text + "\n")


def as_json(message: Message | Entry) -> str:
    """Return a message as one line of JSON, with the field names of the API. Zero values are included.

    As always in protobuf's JSON, 64-bit integers are strings and times are RFC 3339.
    """
    if not isinstance(message, Message):
        return message.as_json()
    return MessageToJson(
        message, indent=None, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def _brief(line: Callable[[M], str]) -> Callable[[M], str]:
    """Return a function that returns the job id of a message, or the result of `line` if the message has
    no job.
    """

    def written(message: M) -> str:
        job = getattr(message, "job_id", None)
        return line(message) if job is None else str(job)

    return written


def silent(_message: object) -> str:
    """Return "": the brief form of results that --quiet leaves out."""
    return ""


def remark(text: str) -> None:
    """Print one line for people to standard error."""
    sys.stderr.write(f"trainctl: {printable(text)}\n")
    sys.stderr.flush()


class Remarks(logging.Handler):
    """Prints the client's log records as remarks: for example, the client lost the service and retries."""

    def __init__(self, is_quiet: Callable[[], bool]) -> None:
        super().__init__()
        self._is_quiet = is_quiet

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record. With --quiet, print it only if it is a warning or an error."""
        if record.levelno >= logging.WARNING or not self._is_quiet():
            remark(record.getMessage())


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        """Let `boundary` handle a broken pipe. Rich would exit with 1."""
        raise BrokenPipeError


def _is_terminal(stream: TextIO) -> bool:
    """Return whether output to the stream should be drawn, as on a terminal.

    Rich's own rule also obeys FORCE_COLOR. CI systems set this variable for all commands, so `$(trainctl
    submit …)` would get terminal output there.
    """
    if os.environ.get("TERM") in ("dumb", "unknown"):
        return False
    return stream.isatty() or os.environ.get("TTY_COMPATIBLE") == "1"
