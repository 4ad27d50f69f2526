"""A folder of process groups whose programs the tests write."""

from tests.support.processes import world

__all__ = ["world"]
