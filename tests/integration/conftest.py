"""Limits within a service that a busy machine must not reach."""

import pytest

from tests.support.patience import PATIENCE


@pytest.fixture(autouse=True)
def patient_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a service of this process take its time for what it otherwise leaves out after some seconds.

    These are the best remedy for a waiting job, the log of a job that has ended, and its model.
    """
    monkeypatch.setattr("job_tracker.scheduling.waiting_view._REMEDY_SECONDS", PATIENCE)
    monkeypatch.setattr("job_tracker.logs.collector._PROMPT_SECONDS", PATIENCE)
    monkeypatch.setattr("job_tracker.files.artifacts._PROMPT_SECONDS", PATIENCE)
