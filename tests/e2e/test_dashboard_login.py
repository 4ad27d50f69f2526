"""A page in a browser whose session has ended asks for a login."""

from playwright.async_api import expect

from tests.support.api_service import serve
from tests.support.browsers import chromium, new_page
from tests.support.web_site import Visit, visit

__all__ = ["serve", "visit"]


async def test_a_page_whose_session_has_ended_leads_to_the_login(visit: Visit) -> None:
    site = await visit(auth={"loopback": "token"})
    async with chromium() as browser:
        page = await new_page(browser, site.dashboard.url)
        token = page.get_by_label("Token")
        await page.goto("/queue")
        await token.fill(site.operator_token())
        await page.get_by_role("button", name="Log in").click()
        await expect(page.locator("[sse-connect]")).to_have_count(1)
        await page.context.clear_cookies()
        site.dashboard._close_streams()  # as at the end of a session
        await expect(token).to_be_visible()
        assert page.url.endswith("/login?next=%2Fqueue")
