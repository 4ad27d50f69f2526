"""Tokens and projects for tests with a running service."""

import uuid
from pathlib import Path
from typing import Any

import grpc

from job_tracker.access import tokens
from job_tracker.domain.caller import Role
from job_tracker.store.redis import Address, RedisStore
from tests.support.api_service import Service
from tests.support.redis_server import ANSWER_SECONDS, RedisServer
from training_service._generated import access_service_pb2 as apb
from training_service._generated.access_service_pb2_grpc import AccessServiceStub

Sent = list[tuple[str, str]]
"""The metadata of a call."""


class RedisOpener:
    """Opens a store in Redis, with a prefix of its own, where a test would open a file."""

    def __init__(self, server: RedisServer) -> None:
        self._address = Address(server.url, f"test-{uuid.uuid4().hex}")

    async def open(self, _path: Path) -> RedisStore:
        """Open the store."""
        return await RedisStore.open(self._address, answer_seconds=ANSWER_SECONDS)


class Entry:
    """Calls the service's operations on tokens and projects as its operator."""

    def __init__(self, service: Service) -> None:
        made = tokens.new_token(tokens.OPERATOR_ID)
        service.access.callers.accept_operator(made.digest)
        self.operator = bearer(made.text)
        self.stub: Any = AccessServiceStub(service.channel)

    async def project(self, name: str, **members: str) -> None:
        """Declare a project. `members` has the role of each member."""
        await self.stub.SetProject(apb.SetProjectRequest(name=name), metadata=self.operator)
        for member, role in members.items():
            await self.member(name, member, role)

    async def member(self, project: str, member: str, role: str) -> None:
        """Give a caller a role in a project."""
        request = apb.SetMemberRequest(project=project, member=member, role=apb.Role.Value(role))
        await self.stub.SetMember(request, metadata=self.operator)

    async def token(self, name: str, project: str = "", role: str = "no_role") -> apb.CreateTokenResponse:
        """Create a token."""
        request = apb.CreateTokenRequest(name=name, project=project, role=apb.Role.Value(role))
        made: apb.CreateTokenResponse = await self.stub.CreateToken(request, metadata=self.operator)
        return made

    async def caller(self, role: Role | None, project: str) -> Sent:
        """Make a token for a new caller, and return the metadata with this token.

        With `role` None, the caller has no role.
        """
        if role in (None, Role.OPERATOR):
            made = await self.token(f"n{uuid.uuid4().hex[:8]}", role="operator" if role else "no_role")
        else:
            made = await self.token("ci", project, str(role))
        return bearer(made.text)


def bearer(text: str) -> Sent:
    """Return the metadata with this token."""
    return [("authorization", f"Bearer {text}")]


LOST_BY_THE_CLIENT = "Internal error from Core"
"""The message of grpc.aio if the server ends a call while the client still sends: the answer is lost."""


async def failure(call: Any) -> tuple[grpc.StatusCode, str]:
    """Return the code and the message with which a call ends.

    If the call is a stream, wait only for its first message.
    """
    try:
        if hasattr(call, "__aiter__"):
            await call.read()
            call.cancel()
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""
