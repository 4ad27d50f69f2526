"""The time that checkpoints cost a training run, and the training that is lost in a kill despite them.

**Overhead.** One process trains a model whose state is about 50 MB. Windows of equal length alternate: one
with an asynchronous save, one without. The difference in CPU time is the price of a save. The whole price
counts, as if the training had waited for the whole save. In fact, another thread does most of the work, and a
step waits only for the copy of the state. The overhead is the larger of this price and the longest wait of a
step, divided by a period of 30 s. The benchmark itself saves more often, so that it takes less time.

**Agreement.** The cost of the messages by which two processes agree on saves. The model is small, and nothing
is saved.

**A kill.** A process is killed at random moments and started again. The time lost is the training since the
checkpoint from which the process resumes. With a period P, the median should be P/2, and the maximum P plus
the time of a save.
"""

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.support import Row, run_alone, workspace

PERIOD = 30.0
"""The overhead is computed for one save every PERIOD seconds."""
_KILL_PERIOD = 1.0


def measure(quick: bool) -> list[Row]:
    windows, kills = (5, 4) if quick else (20, 15)
    with workspace() as folder:
        costs = _measured(folder, "overhead", windows=windows)
        price = statistics.median(
            with_save - without for with_save, without in zip(costs["with"], costs["without"], strict=True)
        )
        blocked = statistics.median(costs["blocked"])
        talk = _measured(folder, "agreement", size=2, windows=windows)
        lost = list(_lost(folder, kills))
    share = max(price, blocked) / PERIOD
    step = statistics.median(costs["step"])
    with_talk = statistics.median(a / b for a, b in zip(talk["with"], talk["without"], strict=True))
    return [
        Row(
            f"checkpoints: {costs['megabytes']:.0f} MB every {PERIOD:.0f} s, on the time of training",
            f"{share:.2%}",
            target="< 2 %",
            met=share < 0.02,
        ),
        Row(
            "… a save: CPU time of all threads",
            f"{price * 1000:.0f} ms",
            f"a step: {step * 1000:.0f} ms",
        ),
        Row("… of which the step waits for the copy", f"{blocked * 1000:.1f} ms"),
        Row(
            "… two processes that agree on saves: steps with agreement against without",
            f"{talk['with_step'] * 1000:.2f} ms",
            f"{talk['without_step'] * 1000:.2f} ms",
            f"{with_talk:.3f}",
        ),
        Row(
            f"… a kill at any moment, saved every {_KILL_PERIOD:.0f} s: training lost, median (most)",
            f"{statistics.median(lost):.2f} s ({max(lost):.2f} s)",
            f"{_KILL_PERIOD / 2:.1f} s",
            f"{statistics.median(lost) / (_KILL_PERIOD / 2):.2f}",
        ),
    ]


def _measured(folder: Path, what: str, *, size: int = 1, windows: int) -> Any:
    """Run the measurement `what` in a group of `size` processes, and return the JSON that rank 0 prints as
    its last line.
    """
    group = [_start(folder, what, rank, size, WINDOWS=str(windows)) for rank in range(size)]
    try:
        outputs = [process.communicate(timeout=900)[0] for process in group]
    finally:
        for process in group:
            process.kill()
    if any(process.returncode for process in group):
        raise RuntimeError(f"the training failed: {outputs}")
    return json.loads(outputs[0].splitlines()[-1])


def _lost(folder: Path, kills: int) -> Iterator[float]:
    """Kill a training repeatedly, and yield the seconds of training that each kill lost."""
    trained = 0.0
    chance = random.Random(1)
    for attempt in range(1, kills + 2):
        process = _start(folder, "kill", 0, 1, JOB_ATTEMPT=str(attempt))
        assert process.stdout
        resumed_at = float(process.stdout.readline())
        if attempt > 1:
            yield max(0.0, trained - resumed_at)
        if attempt <= kills:
            time.sleep(_KILL_PERIOD + chance.uniform(0, 3 * _KILL_PERIOD))
        process.send_signal(signal.SIGKILL)
        trained = float(process.communicate()[0].splitlines()[-1])


def _start(folder: Path, what: str, rank: int, size: int, **variables: str) -> "subprocess.Popen[str]":
    environment = {
        **{name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ},
        "CHECKPOINT_URI": str(folder / what),
        "CHECKPOINT_EVERY_SECONDS": str(_KILL_PERIOD),
        "OMP_NUM_THREADS": "1",
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29631",
        **variables,
    }
    argv = [sys.executable, "-m", "benchmarks.checkpointed", what]
    return subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True)


if __name__ == "__main__":
    run_alone(measure)
