"""The servicer of training.AccessService."""

# The interceptor gives handlers a Call in place of gRPC's context.
# mypy: disable-error-code="override"

from datetime import UTC, datetime, timedelta
from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from job_tracker.access.operations import Access, ProjectView
from job_tracker.access.report_keys import ReportKeyAccess
from job_tracker.common.printable import quoted
from job_tracker.domain.access import Project, Token
from job_tracker.domain.audit import AuditEvent
from job_tracker.domain.caller import Role
from job_tracker.domain.errors import InvalidField
from job_tracker.domain.policies import ProjectLimits
from job_tracker.domain.report_key import ReportKey
from job_tracker.store.audit import AuditFilter
from training_service._generated import access_service_pb2 as pb
from training_service._generated.access_service_pb2_grpc import AccessServiceServicer
from training_service.api.caller import Call
from training_service.api.paging import page_of, page_size

_MOST_ROLES: Final = 1000
"""The largest number of roles in an answer to WhoAmI: they take at most 100 kB."""
_LARGEST_INT32 = 2**31 - 1
_LONGEST_ID = 18


class AccessServicer(AccessServiceServicer):
    """Converts messages and calls the domain. The interceptor handles errors."""

    def __init__(self, access: Access, report_keys: ReportKeyAccess) -> None:
        self._access = access
        self._report_keys = report_keys

    async def WhoAmI(self, request: pb.WhoAmIRequest, call: Call) -> pb.WhoAmIResponse:
        caller = call.caller
        roles = {} if caller.is_everywhere else caller.roles
        shown = sorted(roles)[:_MOST_ROLES]
        return pb.WhoAmIResponse(
            name=caller.name,
            means=caller.means,
            token_id=caller.credential,
            is_operator=caller.is_everywhere,
            roles={project: _number(roles[project]) for project in shown},
            default_project=caller.default_project,
            roles_left_out=len(roles) - len(shown),
        )

    async def CreateToken(self, request: pb.CreateTokenRequest, call: Call) -> pb.CreateTokenResponse:
        role = _role_of(request.role)
        lifetime = _lifetime_of(request.lifetime) if request.HasField("lifetime") else None
        made, token = await self._access.create_token(
            call.caller, request.name, request.project, role, lifetime
        )
        return pb.CreateTokenResponse(token=_token(token), text=made.text)

    async def ListTokens(self, request: pb.ListTokensRequest, call: Call) -> pb.ListTokensResponse:
        found, after = await self._access.list_tokens(
            call.caller, request.project, limit=page_size(request.page_size), after=request.page_token
        )
        return pb.ListTokensResponse(tokens=map(_token, found), next_page_token=after)

    async def RevokeToken(self, request: pb.RevokeTokenRequest, call: Call) -> pb.Token:
        return _token(await self._access.revoke_token(call.caller, request.id))

    async def ListProjects(self, request: pb.ListProjectsRequest, call: Call) -> pb.ListProjectsResponse:
        views = await self._access.list_projects(call.caller)
        found, token = page_of(views, lambda view: view.project.name, request, _project)
        return pb.ListProjectsResponse(projects=found, next_page_token=token)

    async def SetProject(self, request: pb.SetProjectRequest, call: Call) -> pb.Project:
        if request.max_queued < 0:
            raise InvalidField("max_queued", f"{request.max_queued} is not allowed; allowed: 0 or more")
        limits = ProjectLimits(max_queued=request.max_queued or None)
        return self._changed(call, await self._access.set_project(call.caller, request.name, limits))

    async def DeleteProject(self, request: pb.DeleteProjectRequest, call: Call) -> pb.DeleteProjectResponse:
        await self._access.delete_project(call.caller, request.name)
        return pb.DeleteProjectResponse()

    async def SetMember(self, request: pb.SetMemberRequest, call: Call) -> pb.Project:
        role = _role_of(request.role)
        if role is None:
            raise InvalidField("role", "it is missing; allowed: viewer, submitter or admin")
        project = await self._access.set_member(call.caller, request.project, request.member, role)
        return self._changed(call, project)

    async def RemoveMember(self, request: pb.RemoveMemberRequest, call: Call) -> pb.Project:
        project = await self._access.remove_member(call.caller, request.project, request.member)
        return self._changed(call, project)

    async def ListAuditEvents(
        self, request: pb.ListAuditEventsRequest, call: Call
    ) -> pb.ListAuditEventsResponse:
        where = AuditFilter(
            project=request.project,
            caller=request.caller,
            since=_moment_of("since", request.since) if request.HasField("since") else None,
            until=_moment_of("until", request.until) if request.HasField("until") else None,
        )
        limit, before = page_size(request.page_size), _event_id_of(request.page_token)
        found, next_before = await self._access.list_events(call.caller, where, limit=limit, before=before)
        return pb.ListAuditEventsResponse(
            events=map(_event, found), next_page_token=str(next_before) if next_before else ""
        )

    async def ListReportKeys(
        self, request: pb.ListReportKeysRequest, call: Call
    ) -> pb.ListReportKeysResponse:
        keys = await self._report_keys.list_report_keys(call.caller)
        return pb.ListReportKeysResponse(keys=map(_report_key, keys))

    async def RotateReportKey(self, request: pb.RotateReportKeyRequest, call: Call) -> pb.ReportKey:
        return _report_key(await self._report_keys.rotate_report_key(call.caller))

    async def RemoveReportKey(self, request: pb.RemoveReportKeyRequest, call: Call) -> pb.ReportKey:
        return _report_key(await self._report_keys.remove_report_key(call.caller, request.id))

    @staticmethod
    def _changed(call: Call, project: Project) -> pb.Project:
        """Return the message of a project that the caller has changed.

        The message has the members. The caller may see them, since only operators and the project's admins
        may change a project.
        """
        role = call.caller.role_in(project.name) or Role.ADMIN
        return _project(ProjectView(project, role, is_declared=False))


def _project(view: ProjectView) -> pb.Project:
    project = view.project
    return pb.Project(
        name=project.name,
        members={name: _number(role) for name, role in project.members.items()},
        max_queued=min(project.limits.max_queued or 0, _LARGEST_INT32),
        is_declared_in_file=view.is_declared,
        your_role=_number(view.role),
    )


def _token(token: Token) -> pb.Token:
    message = pb.Token(
        id=token.id,
        name=token.name,
        project=token.project,
        role=_number(token.role) if token.role is not None else pb.no_role,
        created_by=token.created_by,
    )
    message.created_at.FromDatetime(token.created_at)
    if token.expires_at is not None:
        message.expires_at.FromDatetime(token.expires_at)
    if token.revoked_at is not None:
        message.revoked_at.FromDatetime(token.revoked_at)
    if token.used_at is not None:
        message.used_at.FromDatetime(token.used_at)
    return message


def _event(event: AuditEvent) -> pb.AuditEvent:
    message = pb.AuditEvent(
        id=event.id,
        outcome=event.outcome,
        action=event.action,
        project=event.project,
        target=event.target,
        detail=event.detail,
        count=min(event.count, _LARGEST_INT32),
        caller=event.caller,
        means=event.means,
        token_id=event.credential,
        address=event.address,
        request_id=event.request_id,
    )
    message.at.FromDatetime(event.at)
    return message


def _report_key(key: ReportKey) -> pb.ReportKey:
    message = pb.ReportKey(id=key.id, made_by=key.made_by, attempts=len(key.attempts))
    if key.made_at is not None:
        message.made_at.FromDatetime(key.made_at)
    if key.replaced_at is not None:
        message.replaced_at.FromDatetime(key.replaced_at)
    if key.removed_at is not None:
        message.removed_at.FromDatetime(key.removed_at)
    return message


def _number(role: Role) -> pb.Role.ValueType:
    """Return the number of the role, which is the same in messages and in the domain."""
    return role.value  # type: ignore[return-value]


def _role_of(number: int) -> Role | None:
    """Return the role with this number; None for `no_role`. Raises InvalidField for an unknown number."""
    try:
        return Role(number) if number else None
    except ValueError:
        allowed = ", ".join(pb.Role.keys())
        raise InvalidField("role", f"{number} is not a Role; allowed: {allowed}") from None


def _lifetime_of(duration: Duration) -> timedelta:
    try:
        return duration.ToTimedelta()
    except (ValueError, OverflowError):
        raise InvalidField("lifetime", f"{quoted(str(duration.seconds))} s is not a valid duration") from None


def _moment_of(field: str, moment: Timestamp) -> datetime:
    try:
        return moment.ToDatetime(UTC)
    except (ValueError, OverflowError):
        raise InvalidField(field, f"{quoted(str(moment.seconds))} s since 1970 is not a valid time") from None


def _event_id_of(page_token: str) -> int | None:
    if not page_token:
        return None
    if not (page_token.isascii() and page_token.isdigit() and len(page_token) <= _LONGEST_ID):
        raise InvalidField("page_token", f"{quoted(page_token)} is not a next_page_token of this call")
    return int(page_token)
