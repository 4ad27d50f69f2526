"""Settings of authentication."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from job_tracker.common.config import Config


class AuthSettings(Config):
    """The identification of callers. See docs/security.md."""

    loopback: Literal["open", "token"] = Field(
        default="open",
        description="`open`: a service that only this machine can reach (or that has `server.insecure`) asks "
        "for no proof, so every caller without a token is operator. `token`: every caller needs a token or a "
        "client certificate. Unless `server.insecure` is set, a service that other machines can "
        "reach always asks for one.",
    )
    projects_file: Path | None = Field(
        default=None,
        description="TOML file with further tables `[projects.NAME]`. It is read again when it has changed, "
        "without a restart.",
    )
    operators: frozenset[str] = Field(
        default=frozenset(),
        description="Names of callers that are operators: of client certificates, or of tokens that "
        "`trainctl token create NAME` made.",
    )
