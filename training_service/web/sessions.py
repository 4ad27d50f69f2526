"""Sessions of browsers: cookies that every replica can check, since all have the key that signs them."""

import hashlib
import hmac
import json
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Final

from job_tracker.domain.report_key import ReportKey

_LONGEST: Final = 1024
_PURPOSE: Final = b"web session"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A browser's session. It has no secret: a signature in its cookie proves that the service made it."""

    id: str
    """A random id, which is new after each login."""
    ends_at: float
    """The Unix time at which the session ends."""
    credential: str = ""
    """The public id of the token with which the caller logged in. Empty: the caller has not logged in."""
    project: str = ""
    """The caller's default project."""


class Sessions:
    """Makes and checks cookies and the proofs of forms.

    The key is derived from the current key of report tokens, which all replicas know. So a rotation of the
    key of report tokens ends all sessions. Training processes cannot derive the key of sessions: they have
    tokens, but not the key of report tokens.
    """

    def __init__(
        self,
        key: Callable[[], ReportKey],
        lifetime: timedelta,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._key = key
        self.seconds = lifetime.total_seconds()
        self._clock = clock

    def begin(self, credential: str = "", project: str = "") -> Session:
        """Return a new session, with a random id."""
        return Session(
            id=secrets.token_urlsafe(16),
            ends_at=self._clock() + self.seconds,
            credential=credential,
            project=project,
        )

    def cookie_of(self, session: Session) -> str:
        """Return the text of the session's cookie."""
        content = urlsafe_b64encode(json.dumps(asdict(session)).encode()).decode()
        return f"{content}.{self._signed('cookie', content)}"

    def read(self, cookie: str) -> Session | None:
        """Return the session in the cookie.

        None: the cookie is forged or was made with another key, or the session has ended.
        """
        content, _, signature = cookie.partition(".")
        if len(cookie) > _LONGEST or not cookie.isascii():
            return None
        if not hmac.compare_digest(self._signed("cookie", content), signature):
            return None
        session = Session(**json.loads(urlsafe_b64decode(content)))
        return session if self._clock() < session.ends_at else None

    def proof_of(self, session: Session) -> str:
        """Return the secret text that each form of the session sends. Pages of other sites cannot know it."""
        return self._signed("form", session.id)

    def proves(self, session: Session, proof: str) -> bool:
        """Return whether `proof` is the proof of the session."""
        return proof.isascii() and hmac.compare_digest(self.proof_of(session), proof)

    def _signed(self, kind: str, text: str) -> str:
        key = hmac.digest(self._key().secret, _PURPOSE, hashlib.sha256)
        return hmac.new(key, f"{kind} {text}".encode(), hashlib.sha256).hexdigest()
