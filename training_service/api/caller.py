"""Determines the caller of each call."""

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
    """The caller of a call, and the metadata that it sent."""

    caller: Caller
    metadata: Metadata


def call_of(context: Context) -> Call:
    """The call of a gRPC context. It does not need the parsed message."""
    return Call(_caller_at(context.peer()), context.invocation_metadata() or ())


@lru_cache(_PEERS_REMEMBERED)  # a peer is a connection, which usually makes many calls
def _caller_at(peer: str) -> Caller:
    return replace(BUILT_IN, address=peer_host(peer))
