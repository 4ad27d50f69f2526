"""Sessions are valid at each replica, until they end, and cannot be forged."""

import base64
import json
from datetime import timedelta

import pytest

from job_tracker.domain.report_key import ReportKey
from training_service.web.sessions import Session, Sessions


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def sessions(clock: Clock, secret: bytes = b"key") -> Sessions:
    return Sessions(lambda: ReportKey(id=1, secret=secret), timedelta(hours=1), clock)


def test_a_cookie_gives_the_session_at_every_replica(clock: Clock) -> None:
    session = sessions(clock).begin("abc", "vision")
    assert sessions(clock).read(sessions(clock).cookie_of(session)) == session


def test_a_session_ends(clock: Clock) -> None:
    cookie = sessions(clock).cookie_of(sessions(clock).begin())
    clock.now += 3599
    assert sessions(clock).read(cookie)
    clock.now += 1
    assert sessions(clock).read(cookie) is None


def test_another_key_ends_all_sessions(clock: Clock) -> None:
    cookie = sessions(clock).cookie_of(sessions(clock).begin())
    assert sessions(clock, b"other").read(cookie) is None


@pytest.mark.parametrize("change", ["", "x", "é", "." * 2000, ".", "a.b", "e30=." + "0" * 64])
def test_no_other_text_is_a_session(clock: Clock, change: str) -> None:
    assert sessions(clock).read(change) is None


def test_a_changed_session_is_not_one(clock: Clock) -> None:
    cookie = sessions(clock).cookie_of(sessions(clock).begin("abc"))
    content, _, signature = cookie.partition(".")
    fields = json.loads(base64.urlsafe_b64decode(content)) | {"credential": "operator"}
    forged = base64.urlsafe_b64encode(json.dumps(fields).encode()).decode()
    assert sessions(clock).read(f"{forged}.{signature}") is None


def test_each_session_has_a_proof_of_its_own_which_is_no_signature_of_a_cookie(clock: Clock) -> None:
    made = sessions(clock)
    one, other = made.begin(), made.begin()
    assert made.proves(one, made.proof_of(one))
    assert not made.proves(one, made.proof_of(other))
    assert not made.proves(one, "")
    assert not made.proves(one, "é")
    assert made.proof_of(one) not in made.cookie_of(one)


def test_the_id_of_a_session_is_random(clock: Clock) -> None:
    ids = {sessions(clock).begin().id for _ in range(100)}
    assert len(ids) == 100
    assert isinstance(sessions(clock).begin(), Session)
