"""Runs a module of a group whose master waits after a step: `held.py FOLDER MODULE`.

In an attempt for which FOLDER has a file with its number, the master reports the step that is in the file,
and then waits until the file is removed or SIGTERM arrives. See `tests.support.trainers.held`.
"""

import os
import runpy
import signal
import sys
import time
from pathlib import Path
from typing import Any

from trainer_kit.progress import Reporter

HOLD = Path(sys.argv[1]) / os.environ["JOB_ATTEMPT"]
STEP = int(HOLD.read_text()) if HOLD.exists() else None
report = Reporter.report


def report_and_wait(reporter: Reporter, **given: Any) -> None:
    report(reporter, **given)
    if STEP is None or given.get("step") != STEP:
        return
    notices: list[int] = []
    before = signal.getsignal(signal.SIGTERM)
    assert callable(before), "trainer_kit has a handler"

    def handle(number: int, frame: Any) -> None:
        notices.append(number)
        before(number, frame)

    signal.signal(signal.SIGTERM, handle)
    while HOLD.exists() and not notices:
        time.sleep(0.02)
    signal.signal(signal.SIGTERM, before)


if os.environ.get("RANK", "0") == "0":
    Reporter.report = report_and_wait  # type: ignore[method-assign, assignment]
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[1], run_name="__main__", alter_sys=True)
