"""A stream ends when its caller loses the right to read it, whether it waits or not."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from job_tracker.common.log_context import request_id
from job_tracker.domain.audit import AuditEvent, Outcome
from job_tracker.domain.caller import Caller, Means, Role
from job_tracker.domain.errors import Forbidden, LimitExceeded, NotAllowed, StoreUnavailable
from job_tracker.domain.open_streams import OpenStreams, StreamUse
from tests.support.callers import caller_with

VIEWER = caller_with(Role.VIEWER)


class Source:
    """A stream that gives the items that are put into it."""

    def __init__(self) -> None:
        self.items: asyncio.Queue[int | None] = asyncio.Queue()
        self.is_closed = False

    async def stream(self) -> AsyncGenerator[int, None]:
        try:
            while (item := await self.items.get()) is not None:
                yield item
        finally:
            self.is_closed = True


def read(streams: OpenStreams, source: Source, caller: Caller = VIEWER) -> AsyncGenerator[int, None]:
    async def begin() -> tuple[StreamUse, AsyncGenerator[int, None]]:
        return StreamUse(caller, "watch", "vision"), source.stream()

    return streams.read(begin)


async def without_roles(caller: Caller) -> Caller:
    return caller_with(None, name=caller.name)


async def unchanged(caller: Caller) -> Caller:
    return caller


async def test_items_pass_until_the_stream_ends() -> None:
    streams, source = OpenStreams(), Source()
    for item in (1, 2, None):
        source.items.put_nowait(item)
    async with aclosing(read(streams, source)) as items:
        assert [item async for item in items] == [1, 2]
    assert source.is_closed


async def test_a_waiting_reader_learns_at_once_that_its_role_is_gone() -> None:
    streams, source = OpenStreams(), Source()
    async with aclosing(read(streams, source)) as items:
        source.items.put_nowait(1)
        assert await anext(items) == 1
        waiting = asyncio.ensure_future(anext(items))
        await asyncio.sleep(0)
        await streams.recheck(unchanged)
        await asyncio.sleep(0)
        assert not waiting.done()
        await streams.recheck(without_roles)
        with pytest.raises(Forbidden, match="viewer or a higher one may watch jobs; ada has no role there"):
            await waiting
    assert source.is_closed


async def test_a_slow_reader_gets_the_error_instead_of_the_next_item() -> None:
    streams, source = OpenStreams(), Source()
    async with aclosing(read(streams, source)) as items:
        source.items.put_nowait(1)
        source.items.put_nowait(2)
        assert await anext(items) == 1
        await streams.recheck(without_roles)
        with pytest.raises(Forbidden):
            await anext(items)


async def test_a_caller_who_is_no_longer_one_gets_that_error() -> None:
    noted: list[AuditEvent] = []
    streams, source = OpenStreams(note=noted.append), Source()

    async def revoked(_: Caller) -> Caller:
        raise NotAllowed("the token was revoked")

    request_id.set("00000001")
    async with aclosing(read(streams, source)) as items:
        source.items.put_nowait(1)
        await anext(items)
        change = request_id.set("00000002")
        await streams.recheck(revoked)
        request_id.reset(change)
        await streams.recheck(revoked)
        with pytest.raises(NotAllowed, match="revoked"):
            await anext(items)
    [event] = noted
    assert (event.caller, event.action, event.outcome, event.project) == (
        *("ada", "watch", Outcome.DENIED, "vision"),
    )
    assert event.request_id == "00000001", "that of the stream, not of the call that revoked the token"


async def test_only_the_streams_of_that_caller_end() -> None:
    streams, one, other = OpenStreams(), Source(), Source()
    bob = caller_with(Role.ADMIN, name="bob")

    async def current(caller: Caller) -> Caller:
        return bob if caller.name == "bob" else await without_roles(caller)

    async with aclosing(read(streams, one)) as of_ada, aclosing(read(streams, other, bob)) as of_bob:
        one.items.put_nowait(1)
        other.items.put_nowait(1)
        assert [await anext(of_ada), await anext(of_bob)] == [1, 1]
        await streams.recheck(current)
        other.items.put_nowait(2)
        assert await anext(of_bob) == 2
        with pytest.raises(Forbidden):
            await anext(of_ada)


async def test_each_caller_is_asked_once_and_closed_streams_are_forgotten() -> None:
    streams = OpenStreams()
    asked: list[str] = []

    async def current(caller: Caller) -> Caller:
        asked.append(caller.name)
        return caller

    sources = [Source() for _ in range(3)]
    opened = [read(streams, source) for source in sources]
    for source, items in zip(sources, opened, strict=True):
        source.items.put_nowait(1)
        await anext(items)
    await streams.recheck(current)
    assert asked == ["ada"]
    for items in opened:
        await items.aclose()
    await streams.recheck(current)
    assert asked == ["ada"]


async def test_if_callers_cannot_be_looked_up_their_streams_go_on() -> None:
    streams, source = OpenStreams(), Source()

    async def unavailable(_: Caller) -> Caller:
        raise StoreUnavailable("the store does not answer")

    async with aclosing(read(streams, source)) as items:
        source.items.put_nowait(1)
        source.items.put_nowait(2)
        await anext(items)
        with pytest.raises(StoreUnavailable):
            await streams.recheck(unavailable)
        assert await anext(items) == 2


async def test_a_time_out_inside_of_a_stream_stays_a_time_out() -> None:
    async def slow() -> AsyncGenerator[int, None]:
        yield 1
        raise TimeoutError("the storage is slow")

    async def begin() -> tuple[StreamUse, AsyncGenerator[int, None]]:
        return StreamUse(VIEWER, "watch", "vision"), slow()

    items = OpenStreams().read(begin)
    assert await anext(items) == 1
    with pytest.raises(TimeoutError, match="storage"):
        await anext(items)


async def opened(streams: OpenStreams, caller: Caller = VIEWER) -> AsyncGenerator[int, None]:
    source = Source()
    source.items.put_nowait(1)
    items = read(streams, source, caller)
    assert await anext(items) == 1
    return items


async def test_one_caller_may_open_a_number_of_streams_and_another_as_many() -> None:
    streams, bob = OpenStreams(most_of_one=2), Caller(name="bob", means=Means.TOKEN)
    of_ada = [await opened(streams), await opened(streams)]
    with pytest.raises(LimitExceeded, match=r"^2 streams are .*limits\.open_streams_of_caller") as caught:
        await opened(streams)
    assert caught.value.retry_after
    of_bob = [await opened(streams, bob), await opened(streams, bob)]
    await of_ada.pop().aclose()
    of_ada.append(await opened(streams))
    for items in (*of_ada, *of_bob):
        await items.aclose()


async def test_the_streams_of_all_callers_are_bounded() -> None:
    streams = OpenStreams(most=3, most_of_one=2)
    callers = [Caller(name=name, means=Means.TOKEN) for name in ("ada", "bob", "eve")]
    every = [await opened(streams, caller) for caller in callers]
    with pytest.raises(LimitExceeded, match=r"3 streams are open .* \(limits\.open_streams\)"):
        await opened(streams, callers[0])
    for items in every:
        await items.aclose()
    assert not streams._of
