"""The state of all random generators of a process."""

import random
from typing import Any

import numpy as np
import torch


def current() -> dict[str, Any]:
    """Return the state of the global generators of Python, NumPy, PyTorch and the GPU in use."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }


def restore(state: dict[str, Any]) -> None:
    """Restore a state from `current`. A GPU that was not in use then keeps its state."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
