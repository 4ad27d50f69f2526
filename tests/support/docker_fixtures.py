"""Fixtures of tests that need a Docker engine. A conftest.py imports all names in __all__.

The engine is started before the first test, outside of the tests' time limit, and stays up for the next
run. On CI it is stopped. Without an engine, these tests are skipped; on CI they fail.
"""

from collections.abc import Iterator

import pytest

from tests.support.cluster import ON_CI
from tests.support.docker_engine import CommandFailed, DockerEngine, NoEngineHere

__all__ = ["docker_engine", "pytest_runtestloop"]

_OUTCOME = pytest.StashKey[DockerEngine | NoEngineHere | CommandFailed]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Start the engine if a test of this run needs it."""
    wanted = any("docker_engine" in getattr(item, "fixturenames", ()) for item in session.items)
    if not wanted or session.config.option.collectonly or _OUTCOME in session.stash:
        return
    try:
        session.stash[_OUTCOME] = DockerEngine.up()
    except (NoEngineHere, CommandFailed) as error:
        session.stash[_OUTCOME] = error


@pytest.fixture(scope="session")
def docker_engine(request: pytest.FixtureRequest) -> Iterator[DockerEngine]:
    """The engine, which all tests share. A test must remove all its objects."""
    outcome = request.session.stash[_OUTCOME]
    if isinstance(outcome, NoEngineHere) and not ON_CI:
        pytest.skip(str(outcome))
    if isinstance(outcome, Exception):
        pytest.fail(str(outcome), pytrace=False)
    yield outcome
    outcome.heal()
    if ON_CI:
        outcome.down()
