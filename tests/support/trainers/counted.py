"""A disk on which one chosen call fails, before or after its work."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

T = TypeVar("T")


@dataclass
class Faults:
    """The choice of the call that fails.

    Calls are counted from the moment at which `failing` applies this object.
    """

    number: int
    """The number of the call, from 1."""
    after: bool
    """Whether the call does its work before it fails."""
    lasting: bool
    """Whether all later calls also fail."""
    calls: list[str] = field(default_factory=list)
    """The names of the calls so far."""

    @property
    def have_struck(self) -> bool:
        """Whether the chosen call has been made."""
        return len(self.calls) >= self.number

    def call(self, name: str, action: Callable[[], T]) -> T:
        """Count a call. Return the result of `action`, or raise OSError if this call is to fail."""
        self.calls.append(name)
        count = len(self.calls)
        if not (count == self.number or (self.lasting and self.have_struck)):
            return action()
        if self.after and count == self.number:
            action()
        raise OSError(5, f"call {count}, {name}, failed")


class CountedFileSystem(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A local disk whose calls go through `faults`."""

    protocol: ClassVar[str] = "counted"
    faults: ClassVar[Faults | None] = None


def _counted(name: str) -> Callable[..., Any]:
    original = getattr(LocalFileSystem, name)

    def method(self: CountedFileSystem, *arguments: Any, **options: Any) -> Any:
        faults = CountedFileSystem.faults
        if faults is None:
            return original(self, *arguments, **options)
        return faults.call(name, lambda: original(self, *arguments, **options))

    return method


for _name in ("ls", "_open", "pipe_file", "cat_file", "mv", "rm", "rm_file", "makedirs"):
    setattr(CountedFileSystem, _name, _counted(_name))

fsspec.register_implementation("counted", CountedFileSystem, clobber=True)


@contextmanager
def failing(faults: Faults) -> Iterator[Faults]:
    """Apply `faults` to the calls to the file system and to fsync within the block."""
    fsync = os.fsync
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda number: faults.call("fsync", lambda: fsync(number)))
        patch.setattr(CountedFileSystem, "faults", faults)
        yield faults
