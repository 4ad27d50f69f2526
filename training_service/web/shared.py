"""Parts of pages that several viewers watch.

A part is made once for all viewers with the same rights and filter.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from job_tracker.common.tasks import background
from job_tracker.domain.caller import Caller
from training_service.web import live as streams

T = TypeVar("T")

SHORTEST_PAUSE: Final = 0.6
"""The least number of seconds between two versions of a part. Most changes are shown within a second."""
_LONGEST_PAUSE: Final = 5.0
_PAUSE_TIMES: Final = 10
"""A part that takes much computing is made less often: the time from one version to the next is this many
times the computing time of a version, but at most _LONGEST_PAUSE."""


@dataclass(frozen=True, slots=True)
class Version:
    """A part of a page as an event of a stream, and the digest of its text."""

    event: bytes
    digest: str


@dataclass(slots=True)
class _Making:
    """A version of a part that is being made, or is complete."""

    begun: float
    task: "asyncio.Task[Any]"
    next_at: float = float("inf")
    """The time of the event loop from which the next version may be made.

    Infinite: this version is incomplete.
    """


class SharedParts:
    """Makes parts of pages.

    Callers that ask for the same part at about the same time get the same object.
    """

    def __init__(self, pause: float = SHORTEST_PAUSE) -> None:
        """`pause` is the least number of seconds between two versions of a part."""
        self._pause = pause
        self._made: dict[Hashable, _Making] = {}

    async def made(self, key: Hashable, since: float, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of `make` from a call that began at `since` (time of the event loop) or later.

        Callers with the same `key` must have the same `make`, and share its result and its errors. If one of
        these callers is cancelled, `make` continues.
        """
        loop = asyncio.get_running_loop()
        while True:
            known = self._made.get(key)
            if known is not None and known.begun < since:
                if not known.task.done():
                    await asyncio.wait([known.task])
                elif (pause := known.next_at - loop.time()) > 0:
                    await asyncio.sleep(pause)
                else:
                    self._made.pop(key, None)
                continue
            if known is None:
                known = self._made[key] = self._begin(key, make)
            made: T = await asyncio.shield(known.task)
            return made

    def _begin(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, Any]]) -> _Making:
        loop = asyncio.get_running_loop()
        busy = time.process_time()
        # The callers that wait for the version handle its errors.
        task = background(make(), "part of a page", expected=(Exception,), detached=True)
        making = _Making(loop.time(), task)

        def done(_: "asyncio.Task[Any]") -> None:
            # `took` is the elapsed time, but at most the CPU time of this process. Otherwise, versions would
            # come late while the machine is busy with other work.
            took = min(loop.time() - making.begun, time.process_time() - busy)
            making.next_at = making.begun + min(max(self._pause, _PAUSE_TIMES * took), _LONGEST_PAUSE)
            loop.call_later(_LONGEST_PAUSE, forget)

        def forget() -> None:
            if self._made.get(key) is making:
                del self._made[key]

        task.add_done_callback(done)
        return making


def version(name: str, text: str, digest: str = "") -> Version:
    """Return a version of a part: the event `name` with this text.

    The digest is the id of the event: a browser that connects again sends the id of the version that it
    shows. If the text has only changes, pass the digest of the whole version.
    """
    digest = digest or digest_of(text)
    return Version(f"id: {digest}\n{streams.event(name, text)}".encode(), digest)


def digest_of(text: str) -> str:
    """Return the digest that identifies a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def rights_of(caller: Caller) -> Hashable:
    """Return the rights that decide which jobs a caller sees.

    Callers with the same rights can share the parts of pages.
    """
    return frozenset(caller.roles.items()), caller.default_project
