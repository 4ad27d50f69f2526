"""Callers are found by their tokens, and what is remembered of them is never older than a second."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from job_tracker.access import callers as module
from job_tracker.access import tokens
from job_tracker.access.callers import Callers
from job_tracker.access.projects import Projects
from job_tracker.common.rates import Rate
from job_tracker.common.tasks import background, end
from job_tracker.domain.access import Project, Token
from job_tracker.domain.caller import ALL_PROJECTS, BUILT_IN, Caller, Means, Role
from job_tracker.domain.errors import NotAllowed, RateExceeded, StoreUnavailable
from job_tracker.store.base import Store
from job_tracker.store.sqlite import SqliteStore
from tests.support.patience import PATIENCE

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
HERE = "ipv4:127.0.0.1"


@dataclass
class Clock:
    now: float = NOON.timestamp()

    def __call__(self) -> float:
        return self.now


class Desk:
    """Callers of a store, with clocks that stand still."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.time, self.monotonic = Clock(), Clock(1000.0)
        self.declared: Mapping[str, Project] = {}
        self.projects = Projects(store, lambda: self.declared)
        self.callers = Callers(
            store,
            self.projects,
            operators=frozenset({"root", "CN=root"}),
            clock=self.time,
            monotonic=self.monotonic,
        )

    async def token(self, **fields: object) -> str:
        """Store a token, and return its text."""
        made = tokens.new_token()
        token = Token(id=made.id, digest=made.digest, name="alice", created_at=NOON, created_by="operator")
        assert await self.store.add_token(replace(token, **fields), purge_before=NOON)  # type: ignore[arg-type]
        return made.text

    async def caller(self, text: str) -> Caller:
        return await self.callers.by_token(text, HERE)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    store = await SqliteStore.open(tmp_path / "jobs.db")
    yield Desk(store)
    await store.close()


async def test_a_token_of_a_project_has_its_role_there_and_nowhere_else(desk: Desk) -> None:
    await desk.store.put_project(Project(name="vision", members={"vision/alice": Role.ADMIN}))
    caller = await desk.caller(await desk.token(project="vision", role=Role.VIEWER))
    assert (caller.name, caller.means, caller.default_project) == ("vision/alice", Means.TOKEN, "vision")
    assert caller.roles == {"vision": Role.VIEWER}
    assert (caller.address, caller.key) == (HERE, "token:vision/alice")


async def test_a_token_of_a_project_that_does_not_exist_has_no_role(desk: Desk) -> None:
    assert (await desk.caller(await desk.token(project="gone", role=Role.ADMIN))).roles == {}


async def test_a_token_without_a_project_has_the_roles_of_its_name(desk: Desk) -> None:
    desk.declared = {"b": Project(name="b", members={"alice": Role.VIEWER})}
    await desk.store.put_project(Project(name="a", members={"alice": Role.ADMIN, "bob": Role.VIEWER}))
    caller = await desk.caller(await desk.token())
    assert (caller.name, caller.roles) == ("alice", {"a": Role.ADMIN, "b": Role.VIEWER})
    assert caller.default_project == "a"
    assert (await desk.caller(await desk.token(name="carol"))).roles == {}


async def test_operators_are_named_by_the_settings_or_by_the_role(desk: Desk) -> None:
    for text in (await desk.token(name="root"), await desk.token(role=Role.OPERATOR)):
        caller = await desk.caller(text)
        assert caller.roles == {ALL_PROJECTS: Role.OPERATOR}
        assert caller.default_project == "default"
    assert (await desk.callers.by_certificate("CN=root", HERE)).is_everywhere
    assert not (await desk.callers.by_certificate("CN=alice", HERE)).roles


async def test_the_operators_own_token_is_accepted_only_if_the_service_has_one(desk: Desk) -> None:
    made = tokens.new_token(tokens.OPERATOR_ID)
    with pytest.raises(NotAllowed):
        await desk.caller(made.text)
    desk.callers.accept_operator(made.digest)
    assert (await desk.caller(made.text)).is_everywhere
    with pytest.raises(NotAllowed):
        await desk.caller(tokens.new_token(tokens.OPERATOR_ID).text)


async def test_an_unknown_token_and_one_with_another_secret_get_the_same_answer(desk: Desk) -> None:
    text = await desk.token()
    for refused in (tokens.new_token().text, tokens.new_token(tokens.id_of(text)).text, "x", ""):
        with pytest.raises(NotAllowed) as error:
            await desk.caller(refused)
        assert str(error.value) == tokens.REFUSED


async def test_a_token_is_valid_until_it_expires(desk: Desk) -> None:
    text = await desk.token(expires_at=NOON + timedelta(seconds=5))
    desk.time.now += 4.9
    await desk.caller(text)
    desk.time.now += 0.1
    with pytest.raises(NotAllowed, match="expired at 2026-05-04 12:00:05 UTC; ask for a new one"):
        await desk.caller(text)
    await desk.callers.refresh()
    with pytest.raises(NotAllowed, match="expired at"):
        await desk.caller(text)


async def test_known_tokens_are_not_read_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    text = await desk.token()
    first = await desk.caller(text)
    monkeypatch.setattr(desk.store, "token", None)
    assert await desk.caller(text) is first


async def test_what_is_remembered_counts_for_a_second_after_the_last_look(desk: Desk) -> None:
    text = await desk.token()
    await desk.caller(text)
    await desk.store.revoke_token(tokens.id_of(text), NOON)  # as another replica does
    desk.monotonic.now += 0.9
    await desk.caller(text)
    desk.monotonic.now += 0.2
    with pytest.raises(NotAllowed, match="was revoked at 2026-05-04 12:00:00 UTC"):
        await desk.caller(text)


async def test_without_the_store_no_token_is_accepted_after_a_second(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = await desk.token()
    await desk.caller(text)

    async def fails(_: object) -> int:
        raise StoreUnavailable("away")

    monkeypatch.setattr(desk.store, "access_version", fails.__get__(desk.store))
    await desk.caller(text)
    desk.monotonic.now += 1.1
    for call in (desk.caller(text), desk.callers.by_certificate("CN=root", HERE)):
        with pytest.raises(StoreUnavailable):
            await call


async def test_calls_after_a_pause_share_one_look(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    text = await desk.token()
    await desk.caller(text)
    look, looks = desk.store.access_version, 0

    async def counted() -> int:
        nonlocal looks
        looks += 1
        return await look()

    monkeypatch.setattr(desk.store, "access_version", counted)
    desk.monotonic.now += 60
    await asyncio.gather(*(desk.caller(text) for _ in range(8)))
    assert looks == 1


async def test_a_token_that_is_revoked_while_it_is_looked_up_is_not_remembered(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = await desk.token()
    await desk.callers.refresh()
    look_up = desk.store.token

    async def slowly(token_id: str) -> Token | None:
        found = await look_up(token_id)
        await desk.store.revoke_token(token_id, NOON)
        await desk.callers.refresh()
        return found

    monkeypatch.setattr(desk.store, "token", slowly)
    await desk.caller(text)
    monkeypatch.undo()
    with pytest.raises(NotAllowed, match="was revoked"):
        await desk.caller(text)


async def test_changes_are_announced_once_and_so_are_expiries(desk: Desk) -> None:
    text = await desk.token(expires_at=NOON + timedelta(seconds=5))
    heard: list[float] = []

    async def hear() -> None:
        heard.append(desk.time.now - NOON.timestamp())

    desk.callers.on_change(hear)
    await desk.callers.announce()
    await desk.callers.announce()
    assert heard == [0]
    await desk.caller(text)
    desk.declared = {"vision": Project(name="vision")}
    await desk.callers.announce()
    desk.time.now += 6
    await desk.callers.announce()
    await desk.callers.announce()
    assert heard == [0, 0, 6]


async def test_an_announcement_that_fails_is_repeated(desk: Desk) -> None:
    tries = 0

    async def fails_once() -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise StoreUnavailable("away")

    desk.callers.on_change(fails_once)
    with pytest.raises(StoreUnavailable):
        await desk.callers.announce()
    await desk.callers.announce()
    await desk.callers.announce()
    assert tries == 2


async def test_current_gives_the_roles_of_this_moment(desk: Desk) -> None:
    text = await desk.token()
    caller = (await desk.caller(text)).using("vision")
    await desk.store.put_project(Project(name="vision", members={"alice": Role.ADMIN}))
    await desk.callers.refresh()
    current = await desk.callers.remembering()(caller)
    assert (current.roles, current.default_project) == ({"vision": Role.ADMIN}, "vision")
    assert await desk.callers.current(BUILT_IN) is BUILT_IN
    await desk.store.revoke_token(caller.credential, NOON)
    remembering = desk.callers.remembering()
    for _ in range(2):
        with pytest.raises(NotAllowed, match="was revoked"):
            await remembering(caller)


async def test_roles_that_are_remembered_for_a_second_are_looked_up_again(desk: Desk) -> None:
    caller = await desk.caller(await desk.token())
    await desk.store.put_project(Project(name="vision", members={"alice": Role.ADMIN}))
    desk.monotonic.now += 1.1
    assert (await desk.callers.current(caller)).roles == {"vision": Role.ADMIN}


async def test_the_last_uses_are_written_together(desk: Desk) -> None:
    text = await desk.token()
    await desk.caller(text)
    desk.time.now += 7
    await desk.caller(text)
    await desk.callers.close()
    found = await desk.store.token(tokens.id_of(text))
    assert found is not None
    assert found.used_at == NOON + timedelta(seconds=7)


async def test_the_last_use_of_a_token_is_kept_while_the_store_does_not_answer(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_: object) -> None:
        raise StoreUnavailable("the store does not answer")

    text = await desk.token()
    await desk.caller(text)
    with monkeypatch.context() as context:
        context.setattr(desk.store, "touch_tokens", away)
        with pytest.raises(StoreUnavailable):
            await desk.callers.flush()
    await desk.callers.flush()
    found = await desk.store.token(tokens.id_of(text))
    assert found is not None
    assert found.used_at == NOON


async def test_it_follows_changes_until_it_is_cancelled(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.001)
    heard = asyncio.Event()
    failing = True
    bugs = iter([RuntimeError("a bug")])

    async def hear() -> None:
        if bug := next(bugs, None):
            raise bug
        if failing:
            raise StoreUnavailable("away")
        heard.set()

    desk.callers.on_change(hear)
    following = background(desk.callers.follow(), "changes")
    async with asyncio.timeout(PATIENCE):
        while "tokens and roles cannot be checked: away" not in caplog.text:
            await asyncio.sleep(0.001)
        failing = False
        await heard.wait()
    await end(following)
    assert caplog.text.count("cannot be checked") == 1, "a lasting problem is logged once"


def failing(desk: Desk, burst: int) -> Callers:
    return Callers(desk.store, desk.projects, failures=Rate(0.001, burst, clock=lambda: 0.0))


async def test_invalid_tokens_of_one_address_are_refused_unchecked_beyond_their_rate(desk: Desk) -> None:
    callers, unknown = failing(desk, 2), tokens.new_token().text
    for text in (unknown, "malformed"):
        with pytest.raises(NotAllowed):
            await callers.by_token(text, HERE)
    with pytest.raises(RateExceeded, match=r"invalid tokens from this address.*limits\.failed_token_rate"):
        await callers.by_token(unknown, HERE)
    with pytest.raises(NotAllowed):
        await callers.by_token(unknown, "ipv4:192.0.2.1")


async def test_invalid_tokens_of_one_ipv6_network_count_together(desk: Desk) -> None:
    callers = failing(desk, 1)
    with pytest.raises(NotAllowed):
        await callers.by_token("malformed", "ipv6:2001:db8::1")
    with pytest.raises(RateExceeded):
        await callers.by_token("malformed", "ipv6:2001:db8::2")
    with pytest.raises(NotAllowed):
        await callers.by_token("malformed", "ipv6:2001:db8:0:1::1")


async def test_a_token_that_was_valid_before_is_checked_during_a_flood(desk: Desk) -> None:
    callers, text = failing(desk, 1), await desk.token()
    assert (await callers.by_token(text, HERE)).name == "alice"
    with pytest.raises(NotAllowed):
        await callers.by_token("malformed", HERE)
    await desk.store.put_project(Project(name="vision"))
    await callers.announce()
    assert (await callers.by_token(text, HERE)).name == "alice"
    await desk.store.revoke_token(tokens.id_of(text), NOON)
    await callers.announce()
    with pytest.raises(NotAllowed, match="was revoked"):
        await callers.by_token(text, HERE)


async def test_valid_tokens_and_those_that_cannot_be_checked_do_not_count(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    callers = failing(desk, 1)
    for _ in range(3):
        assert (await callers.by_token(await desk.token(), HERE)).name == "alice"

    async def away(_: str) -> Token | None:
        raise StoreUnavailable("the store does not answer")

    with monkeypatch.context() as context:
        context.setattr(desk.store, "token", away)
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await callers.by_token(tokens.new_token().text, HERE)
    with pytest.raises(NotAllowed):
        await callers.by_token("malformed", HERE)
