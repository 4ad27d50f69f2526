"""Makes a run reproducible."""

import os
import random

import numpy as np
import torch

LARGEST = 2**32 - 1
"""The largest seed that all generators accept."""


def seed_everything(seed: int) -> None:
    """Seed every random generator, and use deterministic kernels where they exist.

    All processes of a group use the same seed, so they build the same model. They still train on different
    examples, because the sampler of each process takes another part of the same order.
    """
    random.seed(seed)
    np.random.seed(seed)  # the global generator, which libraries use
    torch.manual_seed(seed)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
