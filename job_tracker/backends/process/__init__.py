"""The process backend: groups of plain processes on this machine."""

from job_tracker.backends.process.backend import ProcessBackend
from job_tracker.backends.process.spool import ProcessSpool

__all__ = ["ProcessBackend", "ProcessSpool"]
