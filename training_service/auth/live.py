"""Files that are read again when they have changed, so that they can be replaced without a restart."""

import logging
import stat
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

_CHECK_SECONDS = 1.0

T = TypeVar("T")


class Unusable(Exception):
    """Files cannot be used. The message names the setting, the file and the reason in one line."""


class Live(Generic[T]):
    """The content of files, read again when one of them has changed.

    A change that cannot be used is logged once, and the previous content stays in use. The change is tried
    again at each check, since files that belong together may be replaced one after the other. For the same
    reason, an unusable change counts as a problem only if the files stay the same until the next check. Any
    thread may call `get`.
    """

    def __init__(
        self,
        name: str,
        paths: Sequence[Path],
        read: Callable[[], T],
        *,
        check_seconds: float = _CHECK_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        announces: bool = True,
    ) -> None:
        """Read the files. Raises Unusable as `read` does, and for a path that is not a regular file.

        `name` names the files in the log; it may be the name of a setting. Without `announces`, the caller
        decides whether it uses changed content, and logs its decision.
        """
        self._name = name
        self._paths = paths
        self._read = read
        self._check_seconds = check_seconds
        self._clock = clock
        self._announces = announces
        self._lock = threading.Lock()
        self.problem: str | None = None
        """The reason why the current files cannot be used.

        None: they are in use, or so far only one check has found them unusable.
        """
        # The state is read before the content, so that the next check finds a change between the two.
        self._state = self._look()
        self._unusable: tuple[object, ...] | None = None
        """The state of the files at the last try to read them, if they could not be used; otherwise None."""
        self._value = self._read_files()
        self._next_check = clock() + check_seconds

    def get(self) -> T:
        """Return the newest usable content. Looks at the files at most once in `check_seconds`."""
        if self._clock() >= self._next_check and self._lock.acquire(blocking=False):
            try:
                self._check()
            finally:
                self._lock.release()
        return self._value

    def _check(self) -> None:
        self._next_check = self._clock() + self._check_seconds
        state = self._look()
        if state == self._state and self.problem is None:
            return
        try:
            value = self._read_files()
        except Unusable as error:
            if state != self._unusable:  # no problem yet: perhaps the files are being replaced now
                self._unusable = state
                return
            if str(error) != self.problem:
                log.error("%s; the previous content stays in use", error)
            self.problem = str(error)
        else:
            # The state may change although the content does not: each minute, a kubelet sets the owner group
            # of the files of mounted Secrets again.
            changed = value != self._value
            is_news = self._announces if changed else self.problem is not None
            if state != self._state and is_news:
                log.info("%s: the changed files are in use", self._name)
            if changed:
                self._value = value
            self._state, self._unusable, self.problem = state, None, None

    def _read_files(self) -> T:
        for path in self._paths:
            if is_special(path):  # reading a pipe might never end
                raise Unusable(f"{self._name}: {path}: it is not a regular file")
        return self._read()

    def _look(self) -> tuple[object, ...]:
        return tuple(_state_of(path) for path in self._paths)


def _state_of(path: Path) -> object:
    try:
        status = path.stat()
    except OSError as error:
        return error.errno
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def is_special(path: Path) -> bool:
    """Return whether the path is something other than a regular file, such as a pipe."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False  # the path does not exist, or reading it will raise an error with the reason
