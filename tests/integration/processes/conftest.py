"""A world of processes whose programs the tests write themselves."""

from tests.support.processes import world

__all__ = ["world"]
