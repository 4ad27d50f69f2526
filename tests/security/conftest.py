"""A world of processes whose programs the tests write themselves."""

from tests.integration.processes.conftest import world

__all__ = ["world"]
