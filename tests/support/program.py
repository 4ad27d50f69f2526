"""A training program that its parameters control. The fake backend simulates the same."""

import fcntl
import os
import stat
import sys
import termios
import time
from pathlib import Path

READ_SECONDS = 30.0
"""A test may have frozen the engine. The program must not wait for it for ever."""
rank = os.environ["RANK"]


def note(event: str) -> None:
    """Append a line with the job, the attempt, the rank and `event` to the file RECORD, if one is given."""
    if record := os.environ.get("RECORD"):
        rank_id = " ".join(os.environ[name] for name in ("JOB_ID", "JOB_ATTEMPT", "RANK"))
        with Path(record).open("a") as file:
            file.write(f"{rank_id} {event}\n")


def until_read(output: int) -> None:
    """Wait until the engine has read the output from a pipe, for at most READ_SECONDS.

    containerd may lose output that it has not read when the program ends (containerd/containerd, pull request
    12364).
    """
    deadline = time.monotonic() + READ_SECONDS
    while stat.S_ISFIFO(os.fstat(output).st_mode) and time.monotonic() < deadline:
        if not any(fcntl.ioctl(output, termios.FIONREAD, bytes(4))):
            return
        time.sleep(0.01)


note("began")
print(os.environ.get("PRINT", ""), flush=True)
if variable := os.environ.get("PRINT_VARIABLE"):
    print(os.environ[variable], flush=True)
seconds = os.environ.get("RUN_SECONDS", "0")
time.sleep(1e6 if seconds == "forever" else float(seconds))
while (awaited := os.environ.get("UNTIL_FILE")) and not Path(awaited).exists():
    time.sleep(0.01)
note("ended")
until_read(sys.stdout.fileno())
if os.environ.get("FAIL_RANK", rank) == rank:
    sys.exit(int(os.environ.get("EXIT_CODE", "0")))
