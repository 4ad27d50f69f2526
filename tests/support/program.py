"""A training program that does what its parameters say; the fake backend simulates the same."""

import os
import sys
import time

rank = os.environ["RANK"]
print(os.environ.get("PRINT", ""), flush=True)
seconds = os.environ.get("RUN_SECONDS", "0")
time.sleep(1e6 if seconds == "forever" else float(seconds))
if os.environ.get("FAIL_RANK", rank) == rank:
    sys.exit(int(os.environ.get("EXIT_CODE", "0")))
