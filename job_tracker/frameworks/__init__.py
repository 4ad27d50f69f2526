"""What each training framework wants to be told: group and rank in, environment out."""

from collections.abc import Mapping

from job_tracker.frameworks.base import Framework, GroupLayout
from job_tracker.frameworks.pytorch import PyTorch

FRAMEWORKS: Mapping[str, Framework] = {"pytorch": PyTorch()}

__all__ = ["FRAMEWORKS", "Framework", "GroupLayout"]
