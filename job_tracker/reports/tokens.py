"""Tokens that let a training process report, for its own attempt of its own job and for nothing else."""

import base64
import hashlib
import hmac
import re
from functools import lru_cache

from job_tracker.domain.errors import NotAllowed

_FORM = re.compile(r"(\d{1,10})\.(\d{1,6})\.([A-Za-z0-9_-]{43})", re.ASCII)


class ReportTokens:
    """Makes and reads tokens; every replica does so alike, as the secret is in the store.

    A token is JOB.ATTEMPT.MAC, the MAC an HMAC (RFC 2104) with SHA-256 of what stands before it. Nothing
    is kept of it: who has the secret can tell a good one.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self.read = lru_cache(maxsize=4096)(self._read)

    def issue(self, job_id: int, attempt: int) -> str:
        """The token of an attempt, always the same."""
        claim = f"{job_id}.{attempt}"
        return f"{claim}.{self._mac('report', claim)}"

    def group(self, job_id: int, attempt: int) -> str:
        """What the processes of an attempt know each other by, and nobody else does."""
        return self._mac("group", f"{job_id}.{attempt}")

    def _mac(self, purpose: str, claim: str) -> str:
        mac = hmac.digest(self._secret, f"{purpose} {claim}".encode(), hashlib.sha256)
        return base64.urlsafe_b64encode(mac).decode().rstrip("=")

    def _read(self, token: str) -> tuple[int, int]:
        """The job and the attempt that the token is good for. Raises NotAllowed."""
        form = _FORM.fullmatch(token)
        if form is None:
            raise NotAllowed("this is not a report token: send REPORT_TOKEN as it is in the environment")
        job_id, attempt = int(form[1]), int(form[2])
        if not hmac.compare_digest(self.issue(job_id, attempt), token):
            raise NotAllowed("this report token was not issued by this service")
        return job_id, attempt
