"""Login and logout."""

from starlette.responses import Response

from job_tracker.domain.errors import NotAllowed
from training_service.web.site import set_cookie
from training_service.web.visits import Visit, see

_LONGEST_PATH = 2000


async def login(visit: Visit) -> Response:
    """Show the form that asks for a token."""
    return visit.page("login.html", next=local(visit.query.get("next", "")), problem="")


async def log_in(visit: Visit) -> Response:
    """Begin a session of the caller whose token is in the form; if the token is refused, show the form
    again.
    """
    there = local(visit.form.get("next", ""))
    try:
        caller, session = await visit.parts.visitors.log_in(
            visit.request, visit.form.get("token", "").strip()
        )
    except NotAllowed as error:
        return visit.page("login.html", 401, next=there, problem=str(error).partition("; send ")[0])
    visit.caller = caller
    response = see(there)
    set_cookie(response, visit, session)
    return response


async def log_out(visit: Visit) -> Response:
    """End the session in this browser."""
    response = see("/login")
    response.delete_cookie(visit.parts.visitors.cookie, path="/")
    return response


def local(path: str) -> str:
    """Return the path if it is on the dashboard, and "/jobs" if not. So no login can lead to another site."""
    is_local = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_local and len(path) <= _LONGEST_PATH and "\\" not in path else "/jobs"
