"""Runs a module of a group, one process of which is killed: `killed.py MODULE`.

The rank KILL_RANK ends by SIGKILL after step KILL_AT. All ranks wait for each save, so that a test knows from
which step the next attempt resumes.
"""

import os
import runpy
import signal
import sys

from trainer_kit.checkpoints import keeping

RANKS = ("RANK", "HOROVOD_RANK", "JAX_PROCESS_ID", "OMPI_COMM_WORLD_RANK", "TASK")
IS_KILLED = os.environ["KILL_RANK"] in [os.environ.get(name) for name in RANKS]

step = keeping._KeptInFolder.step


def step_and_die(run: keeping._KeptInFolder) -> None:
    step(run)
    run.wait()
    if IS_KILLED and run.steps == int(os.environ["KILL_AT"]):
        if jax := sys.modules.get("jax"):  # this rank's steps run in the background, ahead of the other ranks
            jax.block_until_ready(jax.live_arrays())
        os.kill(os.getpid(), signal.SIGKILL)


keeping._KeptInFolder.step = step_and_die  # type: ignore[method-assign, assignment]
runpy.run_module(sys.argv[1], run_name="__main__", alter_sys=True)
