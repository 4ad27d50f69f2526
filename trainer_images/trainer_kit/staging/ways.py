"""The ways in which the pieces of a dataset of S bytes reach all of n ranks.

| way | read from storage | the busiest rank sends |
|---|---|---|
| direct | n S | 0 |
| broadcast | S | S ⌈log2 n⌉ |
| relay | S | S |
| shards | S, each rank S / n | (n - 1) / n S |
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import NamedTuple

from torch import Tensor

from trainer_kit.staging.peers import Peers
from trainer_kit.staging.pieces import Piece, size_of


class Way(StrEnum):
    """The way in which the data gets to the ranks."""

    NONE = "none"
    """The data stays in storage, and the program reads it there."""
    DIRECT = "direct"
    """Every rank reads all data from storage."""
    BROADCAST = "broadcast"
    """Rank 0 reads the data and sends it down a binomial tree of ranks."""
    RELAY = "relay"
    """Rank 0 reads each piece, and each rank passes the piece on to the next rank."""
    SHARDS = "shards"
    """Each rank reads a share of the data, and all shares go around a ring of ranks."""


Read = Callable[[Piece], bytes]
Arrived = Callable[[Piece, Tensor], None]
"""A function that each rank calls with each piece and its content."""


class Route(NamedTuple):
    """The rank from which a rank receives its pieces, and the ranks to which it sends them."""

    parent: int | None
    """The rank that sends the pieces. None: they come from storage."""
    children: Sequence[int] = ()


def route(way: Way, rank: int, size: int) -> Route:
    """Return the route of a rank. `way` is `direct`, `broadcast` or `relay`."""
    match way:
        case Way.DIRECT:
            return Route(None)
        case Way.BROADCAST:
            # The parent's number is the rank's number with its lowest 1 bit cleared. Of the children, the one
            # with the largest subtree comes first.
            bits = reversed(range((rank & -rank).bit_length() - 1 if rank else size.bit_length()))
            children = [rank + (1 << bit) for bit in bits if rank + (1 << bit) < size]
            return Route(rank & (rank - 1) if rank else None, children)
        case Way.RELAY:
            return Route(rank - 1 if rank else None, [rank + 1] if rank + 1 < size else [])
        case _:
            raise ValueError(f"{way} is not a tree")


def bring(way: Way, pieces: Sequence[Piece], read: Read, peers: Peers, arrived: Arrived) -> None:
    """Bring all pieces to all ranks. Every rank must call this with the same pieces."""
    if way is Way.SHARDS:
        _around_the_ring(pieces, read, peers, arrived)
    else:
        _down_the_tree(route(way, peers.rank, peers.size), pieces, read, peers, arrived)


def _down_the_tree(own: Route, pieces: Sequence[Piece], read: Read, peers: Peers, arrived: Arrived) -> None:
    if own.parent is None:
        contents = (peers.packed(content) for content in _one_ahead(read, pieces))
    else:
        contents = (peers.receive(peers.room(size_of(piece)), own.parent) for piece in pieces)
    for piece, content in zip(pieces, contents, strict=True):
        for child in own.children:
            peers.send(content, child)
        arrived(piece, content)


def _around_the_ring(pieces: Sequence[Piece], read: Read, peers: Peers, arrived: Arrived) -> None:
    own = _one_ahead(read, pieces[peers.rank :: peers.size])
    for begin in range(0, len(pieces), peers.size):
        of_round = pieces[begin : begin + peers.size]
        held = peers.packed(next(own)) if peers.rank < len(of_round) else None
        for step in range(peers.size):
            number, following = ((peers.rank - step - back) % peers.size for back in (0, 1))
            if held is not None:
                arrived(of_round[number], held)
            if step + 1 < peers.size:
                coming = peers.room(size_of(of_round[following])) if following < len(of_round) else None
                peers.pass_on(held, coming)
                held = coming


def _one_ahead(read: Read, pieces: Sequence[Piece]) -> Iterator[bytes]:
    """Yield the content of the pieces. Each piece is read while the previous one is sent and written."""
    with ThreadPoolExecutor(1, "staging") as reader:
        coming = reader.submit(read, pieces[0]) if pieces else None
        for following in [*pieces[1:], None]:
            if coming is None:
                return
            content = coming.result()
            coming = reader.submit(read, following) if following is not None else None
            yield content
