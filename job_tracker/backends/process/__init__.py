"""Groups of plain processes on this machine."""

from job_tracker.backends.process.backend import ProcessBackend, ProcessOptions

__all__ = ["ProcessBackend", "ProcessOptions"]
