"""A folder of process groups whose programs the tests write."""

import pytest

from tests.support.patience import PATIENCE
from tests.support.processes import world

__all__ = ["world"]


@pytest.fixture(autouse=True)
def patient_supervision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the supervisors of ranks start, answer and end as late as they do on a busy machine."""
    for name in ("rank._START_SECONDS", "rank._RECORD_SECONDS", "group._STOP_MARGIN_SECONDS"):
        monkeypatch.setattr(f"job_tracker.backends.process.{name}", PATIENCE)
