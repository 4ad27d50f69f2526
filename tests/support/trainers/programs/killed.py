"""Runs the module MODULE, but kills its process: `killed.py MODULE`.

The rank KILL_RANK ends by SIGKILL after step KILL_AT, as soon as the checkpoint of step KILL_AFTER is
published. So a test knows from which step the next attempt resumes.
"""

import os
import runpy
import signal
import sys
import time
from pathlib import Path

from trainer_kit.checkpoints import keeping

KILL_AT, KILL_AFTER = int(os.environ["KILL_AT"]), int(os.environ["KILL_AFTER"])
RANKS = ("HOROVOD_RANK", "JAX_PROCESS_ID", "OMPI_COMM_WORLD_RANK", "TASK")
RANK = next(os.environ[name] for name in RANKS if name in os.environ)
PAUSE = 0.02  # seconds between two looks at the folder

step = keeping._KeptInFolder.step


def step_and_die(run: keeping._KeptInFolder) -> None:
    step(run)
    if run.steps == KILL_AT:
        folder = Path(os.environ["CHECKPOINT_URI"])
        while not list(folder.glob(f"*.step-{KILL_AFTER:012}.json")):
            time.sleep(PAUSE)
        os.kill(os.getpid(), signal.SIGKILL)


if RANK == os.environ["KILL_RANK"]:
    keeping._KeptInFolder.step = step_and_die  # type: ignore[method-assign]
runpy.run_module(sys.argv[1], run_name="__main__", alter_sys=True)
