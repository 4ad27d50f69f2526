"""Settings of authentication."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from job_tracker.common.config import Config


class AuthSettings(Config):
    """The identification of callers. See docs/security.md."""

    loopback: Literal["open", "token"] = Field(
        default="open",
        description="`open`: if only this machine can reach the service, or if `server.insecure` is set, "
        "every caller without a token is an operator. `token`: every caller needs a token or a client "
        "certificate. If other machines can reach the service and `server.insecure` is not set, every caller "
        "needs a token or a certificate in any case.",
    )
    projects_file: Path | None = Field(
        default=None,
        description="TOML file with further tables `[projects.NAME]`. It is read again when it has changed, "
        "without a restart.",
    )
    operators: frozenset[str] = Field(
        default=frozenset(),
        description="Names of callers that are operators. A caller has the name in its client certificate, "
        "or the NAME of `trainctl token create NAME`.",
    )
