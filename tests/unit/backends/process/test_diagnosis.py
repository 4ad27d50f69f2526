"""Ends of processes, and the advice that fits them."""

import errno

import pytest

from job_tracker.backends.process.diagnosis import diagnose
from job_tracker.backends.process.records import ExecError, ExitRecord


@pytest.mark.parametrize(
    ("uploaded", "where"), [(True, "with --environment of trainctl run"), (False, "virtual_environment")]
)
def test_a_missing_torchrun_is_a_missing_pytorch(uploaded: bool, where: str) -> None:
    error = ExecError(errno=errno.ENOENT, file="/usr/bin/torchrun")
    end = ExitRecord(code=127, at=0.0, stopped=False, oom_kills=0, error=error)
    found = diagnose(0, end, "", "torchrun", uploaded=uploaded)
    assert found is not None
    assert "Install PyTorch" in found.resolution
    assert where in found.resolution
