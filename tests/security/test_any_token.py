"""Any text in place of a token gets one and the same answer, unless it is a valid token."""

import logging
import string
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from job_tracker.access import tokens
from job_tracker.access.callers import Callers
from job_tracker.access.projects import Projects
from job_tracker.domain.access import Project, Token
from job_tracker.domain.caller import Role
from job_tracker.domain.errors import NotAllowed
from job_tracker.store.base import Store
from job_tracker.store.sqlite import SqliteStore
from tests.support.access import Entry, bearer, failure
from tests.support.api_service import Serve, Service
from tests.support.fuzzing import NO_LIMITS, fuzzed
from training_service._generated import access_service_pb2 as apb
from training_service.auth.authenticator import Proofs

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
NAMES = ("alice", "bob", "vision/ci", "operator", "revoked", "expired")
"""The callers with tokens. The tokens of the last two have ended."""
MALFORMED = "the metadata authorization does not have the form 'Bearer TOKEN'; send it in this form"

LOOK_ALIKES = {"s": "ѕ", "t": "ｔ", "a": "а", "o": "0", "0": "O", "_": "＿", "l": "1", "-": "‐", "I": "l"}
ODD = st.sampled_from([*" \t\n\r\0_-.", "\u00a0", "\u200b", "\ufeff", "\u2028", "é", "\ud800", "\x7f", "%"])
CHARACTERS = st.sampled_from(string.ascii_letters + string.digits + "_-") | ODD


class Desk:
    """Callers of a store with a token of each, and an authenticator."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.callers = Callers(store, Projects(store), clock=NOW.timestamp)
        self.authenticator = Proofs(self.callers, None, is_open=False)
        self.texts: dict[str, str] = {}

    async def fill(self) -> None:
        """Make the tokens."""
        await self.store.put_project(Project(name="vision", members={"alice": Role.ADMIN}))
        fields: Mapping[str, Mapping[str, Any]] = {
            "alice": {},
            "bob": {},
            "vision/ci": {"name": "ci", "project": "vision", "role": Role.VIEWER},
            "revoked": {"revoked_at": NOW - timedelta(days=1)},
            "expired": {"expires_at": NOW - timedelta(days=1)},
        }
        for name, more in fields.items():
            made = tokens.new_token()
            token = Token(
                **{
                    **{"id": made.id, "digest": made.digest, "name": name},
                    **{"created_at": NOW - timedelta(days=2), "created_by": "operator"},
                    **more,
                }
            )
            assert await self.store.add_token(token, purge_before=NOW - timedelta(days=30))
            self.texts[name] = made.text
        made = tokens.new_token(tokens.OPERATOR_ID)
        self.callers.accept_operator(made.digest)
        self.texts["operator"] = made.text


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    store = await SqliteStore.open(tmp_path / "jobs.db")
    made = Desk(store)
    await made.fill()
    yield made
    await store.close()


@st.composite
def almost_tokens(draw: st.DrawFn) -> tuple[str, ...]:
    """Names of two tokens, and a change of the first: see `changed`."""
    kinds = (
        "put",
        "cut",
        "add",
        "id",
        "secret",
        "lower",
        "upper",
        "swapcase",
        "look",
        "twice",
        "long",
        "whole",
    )
    kind = draw(st.sampled_from(kinds))
    one, other = draw(st.sampled_from(NAMES)), draw(st.sampled_from(NAMES))
    return kind, one, other, draw(CHARACTERS), str(draw(st.integers(0, tokens.LENGTH)))


def changed(texts: Mapping[str, str], change: tuple[str, ...]) -> str:
    """Return a token with a change, such as a secret with the id of another token."""
    kind, one, other, character, number = change
    text, second, place = texts[one], texts[other], int(number)
    prefix, end = text[: text.rindex("_", 0, 13) + 1], text[13:]
    match kind:
        case "put":
            return text[:place] + character + text[place + 1 :]
        case "cut":
            return text[:place] + text[place + 1 :]
        case "add":
            return text[:place] + character + text[place:]
        case "id":
            return second[:12] + text[12:]
        case "secret":
            return f"tst_{tokens.OPERATOR_ID}_{end}" if place % 2 else prefix + second[13:]
        case "lower" | "upper" | "swapcase":
            return str(getattr(text, kind)())
        case "look":
            return "".join(LOOK_ALIKES.get(c, c) if at == place else c for at, c in enumerate(text))
        case "twice":
            return f"{text}{character}{second}"
        case "long":
            return text + character * 10_000
    return text


async def answer(desk: Desk, sent: str) -> str:
    """Return the name of the caller, or the reason of the refusal."""
    try:
        caller, identity = await desk.authenticator.authenticate(
            [("authorization", sent)], "ipv4:192.0.2.1", Peer()
        )
    except NotAllowed as error:
        return str(error)
    assert identity is None
    return caller.name


class Peer:
    def auth_context(self) -> Mapping[str, list[bytes]]:
        return {}


def expected(desk: Desk, text: str) -> str:
    """The expected answer to a caller with this text as its token."""
    name = next((name for name, token in desk.texts.items() if token == text.strip()), "")
    match name:
        case "revoked":
            return f"the token {text.strip()[4:12]} was revoked at 2026-05-03 12:00:00 UTC; ask for a new one"
        case "expired":
            return f"the token {text.strip()[4:12]} expired at 2026-05-03 12:00:00 UTC; ask for a new one"
    return name or tokens.REFUSED


@fuzzed(200)
@given(change=almost_tokens())
@example(change=("look", "alice", "bob", "x", "1"))
@example(change=("id", "bob", "alice", "x", "0"))
@example(change=("secret", "alice", "bob", "x", "1"))
@example(change=("add", "operator", "bob", "\u00a0", "56"))
async def test_a_token_that_was_changed_is_not_valid(
    desk: Desk, caplog: pytest.LogCaptureFixture, change: tuple[str, ...]
) -> None:
    text = changed(desk.texts, change)
    for scheme in ("Bearer ", "bearer "):
        assert await answer(desk, scheme + text) == expected(desk, text)
    assert caplog.text == ""


@fuzzed(200)
@given(sent=st.text(max_size=80) | st.text(CHARACTERS, max_size=80).map("Bearer {}".format))
async def test_any_text_is_refused_with_one_of_two_messages(desk: Desk, sent: str) -> None:
    assert await answer(desk, sent) in (tokens.REFUSED, MALFORMED)


class Crowd:
    """A server that asks for tokens, and a token of each caller."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.entry = Entry(service)
        self.texts: dict[str, str] = {}

    async def fill(self) -> None:
        """Make the tokens."""
        await self.entry.project("vision", alice="admin")
        for name in ("alice", "bob", "revoked", "expired"):
            self.texts[name] = (await self.entry.token(name)).text
        self.texts["vision/ci"] = (await self.entry.token("ci", "vision", "viewer")).text
        self.texts["operator"] = self.entry.operator[0][1].removeprefix("Bearer ")


@pytest.fixture
async def crowd(serve: Serve) -> Crowd:
    made = Crowd(await serve(tracked=False, auth={"loopback": "token"}, limits=NO_LIMITS))
    await made.fill()
    return made


@fuzzed(40)
@given(
    change=almost_tokens(), method=st.sampled_from(["WhoAmI", "ListTokens", "ListProjects", "DeleteProject"])
)
async def test_no_changed_token_is_valid_at_a_server(
    crowd: Crowd, caplog: pytest.LogCaptureFixture, change: tuple[str, ...], method: str
) -> None:
    caplog.set_level(logging.DEBUG)
    # The client's own library refuses other texts.
    text = "".join(c for c in changed(crowd.texts, change) if " " <= c <= "~")[:7000]
    if text.strip() in crowd.texts.values():
        return
    request = getattr(apb, f"{method}Request")(**({"name": "vision"} if method == "DeleteProject" else {}))
    code, details = await failure(getattr(crowd.entry.stub, method)(request, metadata=bearer(text)))
    assert (code, details) == (grpc.StatusCode.UNAUTHENTICATED, tokens.REFUSED)
    assert not [name for name, token in crowd.texts.items() if token[13:] in caplog.text]
    who = await crowd.entry.stub.WhoAmI(apb.WhoAmIRequest(), metadata=bearer(crowd.texts["alice"]))
    assert who.name == "alice"
