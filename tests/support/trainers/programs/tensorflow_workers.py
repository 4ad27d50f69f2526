"""Trains with `tensorflow_questions.workers`, whose heartbeats may be late.

By default, TensorFlow ends the group if a heartbeat takes 5 s, or if a worker sends none for 10 s. On a busy
machine, a process may be paused for longer. Lost connections are still noticed at once.
"""

import runpy
from functools import partialmethod

from tensorflow.python.eager.context import Context

from tests.support.patience import PATIENCE

Context.configure_coordination_service = partialmethod(
    Context.configure_coordination_service, heartbeat_timeout_in_ms=int(1000 * PATIENCE)
)
runpy.run_module("tensorflow_questions.workers", run_name="__main__", alter_sys=True)
