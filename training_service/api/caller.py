"""Determines the caller of each call."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

import grpc

from job_tracker.common.printable import quoted
from job_tracker.domain import naming
from job_tracker.domain.caller import Caller, Means
from job_tracker.domain.errors import InvalidField
from training_service.api.peers import peer_host
from training_service.auth.authenticator import Authenticator
from training_service.auth.certificates import Identity

Context = grpc.aio.ServicerContext[Any, Any]
Metadata: TypeAlias = grpc.aio.Metadata | tuple[()]

PROJECT_HEADER: Final = "x-project"
"""Metadata key of the project for new jobs, uploads and lists. This project replaces the caller's default
project.
"""

_PEERS_REMEMBERED = 1024


@dataclass(frozen=True, slots=True)
class Call:
    """The caller of a call, and the metadata that the client sent."""

    caller: Caller
    metadata: Metadata
    identity: Identity | None = None
    """The identity in the client's certificate, if the certificate identified the caller."""


def metadata_of(context: Context) -> Metadata:
    """Return the metadata that the client sent."""
    return context.invocation_metadata() or ()


async def call_of(context: Context, metadata: Metadata, authenticator: Authenticator) -> Call:
    """Return the call of a gRPC context, with its caller. The message need not be parsed for this.

    Raises NotAllowed if the caller cannot be identified, and RateExceeded if invalid tokens come too often
    from its address. Raises StoreUnavailable if the store is needed to identify the caller and does not
    answer. Raises InvalidField if the metadata names several projects, or a name that no project
    can have.
    """
    caller, identity = await authenticator.authenticate(metadata, _host_at(context.peer()), context)
    projects = [value for key, value in metadata if key == PROJECT_HEADER and isinstance(value, str)]
    if projects:
        if len(projects) > 1:
            raise InvalidField(PROJECT_HEADER, f"it is given {len(projects)} times; send it once")
        caller = caller.using(project_of(PROJECT_HEADER, projects[0]))
    return Call(caller, metadata, identity)


def call_by_report_token(context: Context, metadata: Metadata) -> Call:
    """Return the call of a training process. The handler of the call checks the report token."""
    caller = Caller(name="", means=Means.REPORT, address=_host_at(context.peer()))
    return Call(caller, metadata)


_host_at = lru_cache(_PEERS_REMEMBERED)(peer_host)  # a peer is a connection, which usually carries many calls


def project_of(field: str, text: str) -> str:
    """Return `text`, the name of a project.

    Raises InvalidField for `field` if no project can have this name.
    """
    if not naming.is_project(text):
        raise InvalidField(field, f"{quoted(text)} is not the name of a project: {naming.PROJECT_RULE}")
    return text
