"""A training program that does what its parameters say; the fake backend simulates the same."""

import os
import sys
import time
from pathlib import Path

rank = os.environ["RANK"]


def note(what: str) -> None:
    """A line in the file RECORD, if there is one, that tells how often which rank of which attempt ran."""
    if record := os.environ.get("RECORD"):
        who = " ".join(os.environ[name] for name in ("JOB_ID", "JOB_ATTEMPT", "RANK"))
        with Path(record).open("a") as file:
            file.write(f"{who} {what}\n")


note("began")
print(os.environ.get("PRINT", ""), flush=True)
seconds = os.environ.get("RUN_SECONDS", "0")
time.sleep(1e6 if seconds == "forever" else float(seconds))
note("ended")
if os.environ.get("FAIL_RANK", rank) == rank:
    sys.exit(int(os.environ.get("EXIT_CODE", "0")))
