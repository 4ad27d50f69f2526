"""Tokens, projects, members, report keys and audit events, for plain programs, scripts and notebooks.

Generated from access_aio.py by scripts/generate-client: change it there.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from training_service._generated.access_service_pb2 import (
    AuditEvent,
    CreateTokenRequest,
    CreateTokenResponse,
    DeleteProjectRequest,
    ListAuditEventsRequest,
    ListProjectsRequest,
    ListReportKeysRequest,
    ListTokensRequest,
    Project,
    RemoveMemberRequest,
    RemoveReportKeyRequest,
    ReportKey,
    RevokeTokenRequest,
    Role,
    RotateReportKeyRequest,
    SetMemberRequest,
    SetProjectRequest,
    Token,
    WhoAmIRequest,
    WhoAmIResponse,
)
from training_service._generated.access_service_pb2_grpc import AccessServiceStub
from training_service.client.calls_sync import answer_of
from training_service.client.credentials import Credentials
from training_service.client.requests import encoded, timestamp

T = TypeVar("T")


class Access:
    """Manages who may use the service, and for what. It is the `access` of a TrainingClient.

    Every method may raise TrainingServiceError, such as NotAllowed if the caller's role does not allow the
    call.
    """

    def __init__(self, channel: grpc.Channel, address: str, credentials: Credentials, timeout: float) -> None:
        self._stub = AccessServiceStub(channel)
        self._address = address
        self._credentials = credentials
        self._timeout = timeout

    def whoami(self) -> WhoAmIResponse:
        """Return the caller's name and roles, and how the service has identified the caller."""
        return self._answer_of(self._stub.WhoAmI, WhoAmIRequest())

    def create_token(
        self,
        name: str,
        *,
        project: str = "",
        role: Role.ValueType = Role.no_role,
        lifetime: timedelta | None = None,
    ) -> CreateTokenResponse:
        """Create a token, and return it with its text, which the service does not keep.

        With a `project`, the token is valid in that project alone, with the `role`. With neither project nor
        role, the token has the roles that the caller `name` has as a member of projects. With the role
        `operator` and no project, the token has all rights. The token expires after `lifetime`, or never if
        `lifetime` is None. After Unavailable, the call is not retried, and there may be a token whose text is
        lost.
        """
        request = encoded(lambda: CreateTokenRequest(name=name, project=project, role=role))
        if lifetime is not None:
            duration = Duration()
            duration.FromTimedelta(lifetime)
            request.lifetime.CopyFrom(duration)
        return self._answer_of(self._stub.CreateToken, request)

    def tokens(self, project: str = "") -> Iterator[Token]:
        """Yield the tokens of a project, sorted by id.

        Without a project, yield the tokens of all projects, which only operators may list. Tokens that have
        expired or were revoked are included for about a month.
        """
        request = encoded(lambda: ListTokensRequest(project=project, page_size=1000))
        while True:
            page = self._answer_of(self._stub.ListTokens, request)
            yield from page.tokens
            if not page.next_page_token:
                return
            request = ListTokensRequest(project=project, page_size=1000, page_token=page.next_page_token)

    def revoke_token(self, token_id: str) -> Token:
        """Revoke a token by its id, for ever. The call may be repeated.

        Raises NotFound if there is no such token, or if the caller may not revoke it.
        """
        request = encoded(lambda: RevokeTokenRequest(id=token_id))
        return self._answer_of(self._stub.RevokeToken, request)

    def projects(self) -> Iterator[Project]:
        """Yield the projects in which the caller has a role, sorted by name."""
        request = ListProjectsRequest(page_size=1000)
        while True:
            page = self._answer_of(self._stub.ListProjects, request)
            yield from page.projects
            if not page.next_page_token:
                return
            request = ListProjectsRequest(page_size=1000, page_token=page.next_page_token)

    def set_project(self, name: str, *, max_queued: int = 0) -> Project:
        """Declare a project, or replace its limit of waiting jobs, `max_queued`.

        With a limit of 0, only the service's limits apply. Raises FailedPrecondition if a file of the service
        declares the project.
        """
        request = encoded(lambda: SetProjectRequest(name=name, max_queued=max_queued))
        return self._answer_of(self._stub.SetProject, request)

    def delete_project(self, name: str) -> None:
        """Delete a project, and revoke its tokens.

        Raises NotFound if there is no such project. Raises FailedPrecondition if the project has jobs that
        have not ended, if a file of the service declares it, or if it is the project `default`.
        """
        request = encoded(lambda: DeleteProjectRequest(name=name))
        self._answer_of(self._stub.DeleteProject, request)

    def set_member(self, project: str, member: str, role: Role.ValueType) -> Project:
        """Give a caller a role in a project, in place of any earlier role.

        Raises NotFound if there is no such project, and FailedPrecondition if a file of the service declares
        it.
        """
        request = encoded(lambda: SetMemberRequest(project=project, member=member, role=role))
        return self._answer_of(self._stub.SetMember, request)

    def remove_member(self, project: str, member: str) -> Project:
        """Remove a caller's role in a project.

        Raises NotFound if there is no such project, or if `member` has no role in it. Raises
        FailedPrecondition if a file of the service declares the project.
        """
        request = encoded(lambda: RemoveMemberRequest(project=project, member=member))
        return self._answer_of(self._stub.RemoveMember, request)

    def report_keys(self) -> Sequence[ReportKey]:
        """Return the keys of report tokens, sorted by id. The last key is the current one."""
        answer = self._answer_of(self._stub.ListReportKeys, ListReportKeysRequest())
        return answer.keys

    def rotate_report_key(self) -> ReportKey:
        """Create a new key of report tokens. Live attempts keep the key that they have.

        After Unavailable, the call is not retried, and there may be a new key, which does no harm. Raises
        ResourceExhausted if there are too many keys.
        """
        return self._answer_of(self._stub.RotateReportKey, RotateReportKeyRequest())

    def remove_report_key(self, key_id: int) -> ReportKey:
        """Remove a replaced key: the service then refuses reports with tokens of this key.

        Live attempts that use the key can then report only by printed lines, and only if they have not
        reported by calls before.

        Raises NotFound if there is no such key, and FailedPrecondition for the current key.
        """
        request = encoded(lambda: RemoveReportKeyRequest(id=key_id))
        return self._answer_of(self._stub.RemoveReportKey, request)

    def events(
        self,
        project: str = "",
        *,
        caller: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
        page_size: int = 1000,
    ) -> Iterator[AuditEvent]:
        """Yield audit events of a project, newest first.

        Without a project, yield the events of all projects, which only operators may list. `caller` selects
        the events of the caller with this name. `since` (inclusive) and `until` (exclusive) bound the time of
        the events; times without a time zone are local times.
        """
        request = encoded(lambda: ListAuditEventsRequest(project=project, caller=caller, page_size=page_size))
        if since is not None:
            request.since.CopyFrom(timestamp(since))
        if until is not None:
            request.until.CopyFrom(timestamp(until))
        while True:
            page = self._answer_of(self._stub.ListAuditEvents, request)
            yield from page.events
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def _answer_of(self, call: Callable[..., T], request: Message) -> T:
        return answer_of(call, request, self._timeout, self._address, self._credentials.metadata)
