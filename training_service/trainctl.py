"""The entry point of trainctl. It imports little, so that Ctrl-C ends it properly from the start."""

import os
import signal
import sys
from typing import NoReturn

_INTERRUPTED = 130
"""ExitCode.INTERRUPTED, which is not imported yet."""


def main() -> None:
    """Run trainctl."""
    signal.signal(signal.SIGINT, _leave)
    from training_service.client.cli import app

    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        app(prog_name="trainctl")
    finally:
        # The result is known. Ctrl-C would only interrupt the exit of the interpreter, with a traceback.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _leave(*_: object) -> NoReturn:
    """End the process at once. Nothing has begun yet, and an interrupted import could raise any error."""
    sys.stderr.write("trainctl: interrupted\n")
    sys.stderr.flush()
    os._exit(_INTERRUPTED)
