"""Adapters of training frameworks: they compute the environment and command of each instance."""

from collections.abc import Mapping

from job_tracker.frameworks.base import Address, Framework, GroupLayout, Role, Traits
from job_tracker.frameworks.horovod import Horovod
from job_tracker.frameworks.jax import Jax
from job_tracker.frameworks.mpi import Mpi
from job_tracker.frameworks.pytorch import PyTorch
from job_tracker.frameworks.tensorflow import TensorFlow

FRAMEWORKS: Mapping[str, Framework] = {
    "pytorch": PyTorch(),
    "tensorflow": TensorFlow(),
    "jax": Jax(),
    "horovod": Horovod(),
    "mpi": Mpi(),
}

__all__ = ["FRAMEWORKS", "Address", "Framework", "GroupLayout", "Role", "Traits"]
