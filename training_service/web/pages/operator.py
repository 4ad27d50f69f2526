"""Projects, the service, tokens and the audit, as far as the caller may see them."""

from typing import Final

from starlette.responses import Response

from job_tracker.store.audit import AuditFilter
from training_service.web.visits import Visit, see

_PAGE: Final = 100


async def projects(visit: Visit) -> Response:
    """List the caller's projects. Projects in which the caller is an admin are listed with their members."""
    return visit.page("projects.html", tab="", views=await visit.parts.access.list_projects(visit.who))


async def service(visit: Visit) -> Response:
    """Show the replicas, the leader, and the state of the job store and the storage."""
    return visit.page(
        "service.html", tab="service", standing=await visit.parts.service.see_service(visit.who)
    )


async def tokens(visit: Visit) -> Response:
    """List the tokens of the project that the URL names; of all projects if the URL names none."""
    project, after = visit.query.get("project", ""), visit.query.get("after", "")
    found, following = await visit.parts.access.list_tokens(visit.who, project, limit=_PAGE, after=after)
    return visit.page("tokens.html", tab="tokens", tokens=found, project=project, after=following)


async def revoke(visit: Visit) -> Response:
    """Revoke a token."""
    await visit.parts.access.revoke_token(visit.who, visit.form.get("id", ""))
    return see("/operator/tokens")


async def audit(visit: Visit) -> Response:
    """List audit events, the newest first."""
    where = AuditFilter(project=visit.query.get("project", ""), caller=visit.query.get("caller", ""))
    before = visit.whole_number("before", 0, 1, 2**63 - 1) or None
    events, following = await visit.parts.access.list_events(visit.who, where, limit=_PAGE, before=before)
    return visit.page("audit.html", tab="audit", events=events, where=where, before=following)
