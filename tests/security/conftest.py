"""A folder of process groups whose programs the tests write, and services in this process."""

from tests.support.api_service import serve
from tests.support.processes import world

__all__ = ["serve", "world"]
