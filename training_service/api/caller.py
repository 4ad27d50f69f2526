"""The one place where a call gets its caller."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

import grpc

from job_tracker.domain.caller import BUILT_IN, Caller
from training_service.api.peers import peer_host

Context = grpc.aio.ServicerContext[Any, Any]
Metadata: TypeAlias = grpc.aio.Metadata | tuple[()]

_PEERS_REMEMBERED = 1024


@dataclass(frozen=True, slots=True)
class Call:
    """Whose call is being answered, and what was sent beside the message."""

    caller: Caller
    metadata: Metadata


def call_of(context: Context) -> Call:
    """The call of this context, known before its message is parsed."""
    return Call(_caller_at(context.peer()), context.invocation_metadata() or ())


@lru_cache(_PEERS_REMEMBERED)  # a peer is a connection, which mostly makes many calls
def _caller_at(peer: str) -> Caller:
    return replace(BUILT_IN, address=peer_host(peer))
