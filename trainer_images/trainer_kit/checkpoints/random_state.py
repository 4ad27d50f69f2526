"""The random generators of a process, all of them at once."""

import random
from typing import Any

import numpy as np
import torch


def current() -> dict[str, Any]:
    """The state of every global generator: Python's, NumPy's, PyTorch's, and that of the GPU in use."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }


def restore(state: dict[str, Any]) -> None:
    """Goes on from where `current` was; a GPU that was not there then keeps what it has."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
