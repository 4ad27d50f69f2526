"""What all groups of settings have in common."""

import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
)


def _seconds(value: Any) -> Any:
    # The environment and the command line know text only.
    return float(value) if isinstance(value, str) and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value) else value


Duration = Annotated[timedelta, BeforeValidator(_seconds)]
"""ISO 8601, such as PT30S or P30D, or a number of seconds."""


class Group(BaseModel):
    """Settings that belong together: no others, and they never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)
