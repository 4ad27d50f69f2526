"""Tokens of training processes, each valid for one attempt of one job."""

import base64
import hashlib
import hmac
import re
from functools import lru_cache

from job_tracker.domain.errors import NotAllowed

_FORM = re.compile(r"(\d{1,10})\.(\d{1,6})\.([A-Za-z0-9_-]{43})", re.ASCII)


class ReportTokens:
    """Issues and checks tokens. All replicas issue the same tokens, since the secret is in the store.

    A token is JOB.ATTEMPT.MAC. The MAC is an HMAC (RFC 2104, with SHA-256) of job and attempt, so tokens need
    not be stored.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self.read = lru_cache(maxsize=4096)(self._read)

    def issue(self, job_id: int, attempt: int) -> str:
        """The report token of an attempt; always the same."""
        claim = f"{job_id}.{attempt}"
        return f"{claim}.{self._mac('report', claim)}"

    def group(self, job_id: int, attempt: int) -> str:
        """The shared secret of the processes of an attempt."""
        return self._mac("group", f"{job_id}.{attempt}")

    def _mac(self, purpose: str, claim: str) -> str:
        mac = hmac.digest(self._secret, f"{purpose} {claim}".encode(), hashlib.sha256)
        return base64.urlsafe_b64encode(mac).decode().rstrip("=")

    def _read(self, token: str) -> tuple[int, int]:
        """The job and the attempt of a token. Raises NotAllowed for a token that was not issued here."""
        form = _FORM.fullmatch(token)
        if form is None:
            raise NotAllowed(
                "the report token is malformed; send the value of the environment variable REPORT_TOKEN"
            )
        job_id, attempt = int(form[1]), int(form[2])
        if not hmac.compare_digest(self.issue(job_id, attempt), token):
            raise NotAllowed("this service did not issue the report token; send the value of REPORT_TOKEN")
        return job_id, attempt
