"""What configuration is made from."""

import os
import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

DEFAULT_PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}"
"""PATH of programs that the service starts: first the folder of its own python."""


class Config(BaseModel):
    """Values that are read from configuration: none unknown, and they never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _seconds(value: Any) -> Any:
    # The environment and the command line know text only.
    return float(value) if isinstance(value, str) and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value) else value


Duration = Annotated[timedelta, BeforeValidator(_seconds)]
"""ISO 8601, such as PT30S or P30D, or a number of seconds."""
