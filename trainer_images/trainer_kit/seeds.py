"""Making a run repeatable."""

import os
import random

import numpy as np
import torch

LARGEST = 2**32 - 1
"""The largest seed that every generator takes."""


def seed_everything(seed: int) -> None:
    """Seeds every random generator, and asks for deterministic kernels where there are any.

    All processes of a group use the same seed, so they build the same model; each takes its own
    share of the data through its sampler, not through chance.
    """
    random.seed(seed)
    np.random.seed(seed)  # the global generator, which libraries use
    torch.manual_seed(seed)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
