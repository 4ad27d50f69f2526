"""The state of the global random generators of a process."""

import random
import sys
from typing import Any

import numpy as np


def current() -> dict[str, Any]:
    """Return the state of the global generators of Python and NumPy, and of PyTorch if it is imported."""
    state: dict[str, Any] = {"python": random.getstate(), "numpy": np.random.get_state()}
    if torch := sys.modules.get("torch"):
        state["torch"] = torch.get_rng_state()
        state["cuda"] = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
    return state


def restore(state: dict[str, Any]) -> None:
    """Restore a state from `current`. A GPU keeps its state if there was no GPU when the state was saved."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch = sys.modules.get("torch")
    if torch is not None and "torch" in state:
        torch.set_rng_state(state["torch"])
        if state["cuda"] is not None and torch.cuda.is_available():
            torch.cuda.set_rng_state(state["cuda"])
