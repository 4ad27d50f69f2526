"""Numbers the service's calls to the outside, and injects faults into them. Runs inside the service.

Each call is a line in the trace, written before the call: its number, its kind, its name, and the faults that
it offers. A fault that happens is a separate line that begins with `!`.
"""

import functools
import inspect
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.crash.faults import KILL_AFTER, KILL_BEFORE, KILLS, Faults

Errors = Mapping[str, Callable[[], Exception]]


@dataclass(frozen=True, slots=True)
class Seam:
    """A function through which the service touches the outside.

    `name` returns the subject of a call, or None if the call does not touch the outside. `refusals` are
    errors instead of the call. `losses` are errors after the call: the call has its effect, but no answer.
    """

    kind: str
    name: Callable[..., str | None]
    kills: bool = True
    refusals: Errors = field(default_factory=dict)
    losses: Errors = field(default_factory=dict)

    @property
    def offered(self) -> tuple[str, ...]:
        """The faults that can happen to a call."""
        return (*(KILLS if self.kills else ()), *self.refusals, *self.losses)


class Seams:
    """All seams of one service."""

    def __init__(self, faults: Faults | None, trace: Path) -> None:
        self._faults = faults
        self._trace = os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._calls = 0

    def wrap(self, owner: Any, attribute: str, seam: Seam) -> None:
        """Route every call of the function through the seam."""
        original = getattr(owner, attribute)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._passing(seam, args, kwargs):
                return original(*args, **kwargs)

        @functools.wraps(original)
        async def call_and_wait(*args: Any, **kwargs: Any) -> Any:
            with self._passing(seam, args, kwargs):
                return await original(*args, **kwargs)

        wrapper: Any = call_and_wait if inspect.iscoroutinefunction(original) else call
        if isinstance(inspect.getattr_static(owner, attribute), staticmethod):
            wrapper = staticmethod(wrapper)
        setattr(owner, attribute, wrapper)

    @contextmanager
    def _passing(self, seam: Seam, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[None]:
        name = seam.name(*args, **kwargs)
        if name is None:
            yield
            return
        what = self._number(seam, name)
        if what == KILL_BEFORE:
            _die()
        if refusal := seam.refusals.get(what):
            raise refusal()
        yield
        if what == KILL_AFTER:
            _die()
        if loss := seam.losses.get(what):
            raise loss()

    def _number(self, seam: Seam, name: str) -> str:
        with self._lock:
            self._calls += 1
            what = self._faults.choose(self._calls, seam.offered) if self._faults else ""
            self._write(str(self._calls), seam.kind, name, ",".join(seam.offered))
            if what:
                self._write("!", str(self._calls), what)
        return what

    def _write(self, *fields: str) -> None:
        os.write(self._trace, ("\t".join(fields) + "\n").encode())


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait()  # the signal may reach another thread first
