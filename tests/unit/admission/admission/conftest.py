"""Admission waits for datasets on a busy machine."""

import pytest

from tests.support.catalog import wait_for_datasets


@pytest.fixture(autouse=True)
def patient_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_datasets(monkeypatch)
