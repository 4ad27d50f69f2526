"""The fixtures of tests whose trainings are forked."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.trainers.forked_python import ForkedPython
from tests.support.trainers.forkserver import ForkServer

TORCHRUN = Path(__file__).with_name("forked_torchrun.py")


@pytest.fixture(scope="session")
def forks() -> Iterator[Sequence[ForkServer]]:
    """Two fork servers, one for even ranks and one for odd ranks."""
    servers = [ForkServer(), ForkServer()]
    for server in servers:
        server.wait_for_imports()
    yield servers
    for server in servers:
        server.close()


@pytest.fixture
def forked_python(forks: Sequence[ForkServer]) -> Iterator[ForkedPython]:
    """A quick stand-in for `python`, for the groups of a service."""
    python = ForkedPython(forks)
    yield python
    python.close()


def fork_torchrun(folder: Path) -> None:
    """Write a program `torchrun` into a new folder. The `python` of the path, a ForkedPython, forks it.

    If it is killed, the processes that it has started continue to run.
    """
    folder.mkdir()
    program = folder / "torchrun"
    program.write_text(f'#!/bin/sh\nexec python {TORCHRUN} "$@"\n')
    program.chmod(0o755)
