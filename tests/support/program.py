"""A training program that its parameters control. The fake backend simulates the same."""

import os
import sys
import time
from pathlib import Path

rank = os.environ["RANK"]


def note(event: str) -> None:
    """Append a line with the job, the attempt, the rank and `event` to the file RECORD, if one is given."""
    if record := os.environ.get("RECORD"):
        rank_id = " ".join(os.environ[name] for name in ("JOB_ID", "JOB_ATTEMPT", "RANK"))
        with Path(record).open("a") as file:
            file.write(f"{rank_id} {event}\n")


note("began")
print(os.environ.get("PRINT", ""), flush=True)
if variable := os.environ.get("PRINT_VARIABLE"):
    print(os.environ[variable], flush=True)
seconds = os.environ.get("RUN_SECONDS", "0")
time.sleep(1e6 if seconds == "forever" else float(seconds))
while (awaited := os.environ.get("UNTIL_FILE")) and not Path(awaited).exists():
    time.sleep(0.01)
note("ended")
if os.environ.get("FAIL_RANK", rank) == rank:
    sys.exit(int(os.environ.get("EXIT_CODE", "0")))
