"""The fixture of tests whose trainings are forked. A conftest.py imports it."""

from collections.abc import Iterator, Sequence

import pytest

from tests.support.trainers.forkserver import ForkServer


@pytest.fixture(scope="session")
def forks() -> Iterator[Sequence[ForkServer]]:
    """Two fork servers, for neighbouring ranks."""
    servers = [ForkServer(), ForkServer()]
    yield servers
    for server in servers:
        server.close()
