"""Tokens of training processes, each valid for one attempt of one job."""

import base64
import hashlib
import hmac
import re
from functools import lru_cache

from job_tracker.domain.errors import NotAllowed
from job_tracker.domain.report_key import FIRST_KEY, ReportKey
from job_tracker.reports.keys import ReportKeys

_FORM = re.compile(r"(\d{1,10})\.(\d{1,6})\.(?:(\d{1,9})\.)?([A-Za-z0-9_-]{43})", re.ASCII)


class ReportTokens:
    """Issues and checks tokens. All replicas issue the same tokens, since the keys are in the store.

    A token is JOB.ATTEMPT.KEY.MAC, where KEY is the id of a key. Tokens of the first key have no KEY, like
    tokens of earlier versions. The MAC is an HMAC (RFC 2104, with SHA-256) of job and attempt, so tokens
    need not be stored.
    """

    def __init__(self, keys: ReportKeys) -> None:
        self._keys = keys

    def issue(self, job_id: int, attempt: int) -> str:
        """Return the report token of an attempt. The token is always the same until its key is removed."""
        key = self._keys.of(job_id, attempt)
        if key.removed_at is not None:
            key = self._keys.current
        return token_with(key, job_id, attempt)

    def group(self, job_id: int, attempt: int) -> str:
        """Return the shared secret of the processes of an attempt. It never changes during the attempt."""
        return _mac(self._keys.of(job_id, attempt).secret, "group", f"{job_id}.{attempt}")

    async def read(self, token: str) -> tuple[int, int]:
        """Return the job and the attempt of a token.

        Raises NotAllowed if the token was not issued by this service, or if its key was removed. Raises
        StoreUnavailable if the token's key is not known yet and the store does not answer.
        """
        form = _FORM.fullmatch(token)
        if form is None:
            raise NotAllowed(
                "the report token is malformed; send the value of the environment variable REPORT_TOKEN"
            )
        job, attempt, named, mac = form.groups()
        key_id = int(named or FIRST_KEY)
        key = await self._keys.find(key_id)
        if key is None:
            raise NotAllowed(
                f"the report token has the signature of key {key_id}, which this service does not have: the "
                "key was removed, or the service was restored from an earlier backup. This attempt can no "
                "longer report by calls; the next attempt gets a new token"
            )
        claim = f"{int(job)}.{int(attempt)}"
        expected = f"{claim}.{_mac(key.secret, 'report', claim)}"
        if not hmac.compare_digest(expected, f"{job}.{attempt}.{mac}"):
            raise NotAllowed("this service did not issue the report token; send the value of REPORT_TOKEN")
        if key.removed_at is not None:
            raise NotAllowed(
                f"an operator removed key {key_id} of report tokens at {key.removed_at:%Y-%m-%d %H:%M:%S} "
                "UTC. This attempt can no longer report by calls; the next attempt gets a new token"
            )
        return int(job), int(attempt)


def token_with(key: ReportKey, job_id: int, attempt: int) -> str:
    """Return the report token of an attempt, made with this key."""
    claim = f"{job_id}.{attempt}"
    named = claim if key.id == FIRST_KEY else f"{claim}.{key.id}"
    return f"{named}.{_mac(key.secret, 'report', claim)}"


@lru_cache(maxsize=4096)
def _mac(secret: bytes, purpose: str, claim: str) -> str:
    mac = hmac.digest(secret, f"{purpose} {claim}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(mac).decode().rstrip("=")
