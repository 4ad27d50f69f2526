"""Building blocks of the pydantic models of the configuration."""

import os
import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

DEFAULT_PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}"
"""The PATH of programs that the service starts: the folder of its own Python, then the system's default
PATH."""


class Config(BaseModel):
    """A table of the configuration. Unknown keys are refused, and values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _seconds(value: Any) -> Any:
    # Values from the environment and from the command line are strings.
    return float(value) if isinstance(value, str) and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value) else value


Duration = Annotated[timedelta, BeforeValidator(_seconds)]
"""A duration in ISO 8601, such as PT30S or P30D, or a number of seconds."""
