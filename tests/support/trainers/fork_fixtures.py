"""The fixtures of tests whose trainings are forked."""

from collections.abc import Iterator, Sequence

import pytest

from tests.support.trainers.forked_python import ForkedPython
from tests.support.trainers.forkserver import ForkServer


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
