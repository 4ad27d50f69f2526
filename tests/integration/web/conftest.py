"""Fixtures with running dashboards."""

import pytest

from tests.support.api_service import serve
from tests.support.web_site import Browser, Site, Visit, visit

__all__ = ["serve", "visit"]


@pytest.fixture
async def site(visit: Visit) -> Site:
    """A dashboard that asks for no token. Jobs stay queued."""
    return await visit()


@pytest.fixture
async def browser(site: Site) -> Browser:
    """A browser at that dashboard."""
    return site.browser()


@pytest.fixture
async def closed(visit: Visit) -> Site:
    """A dashboard that asks for tokens. Jobs stay queued."""
    return await visit(auth={"loopback": "token"})
