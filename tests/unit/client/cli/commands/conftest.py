"""Jobs that have ended, with series and artifacts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.scaling_machines import Machines
from tests.support.trainctl import HOSTILE_NAME
from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fake_service import ServerInThread


def series(job_id: int, name: str, *values: float) -> pb.MetricSeries:
    points = [pb.MetricPoint(step=step, value=value) for step, value in enumerate(values, start=1)]
    return pb.MetricSeries(job_id=job_id, name=name, points=points)


@pytest.fixture
def trained(training: ServerInThread) -> ServerInThread:
    for job_id in (1, 2):
        training.set_job(
            job_id, status=pb.succeed, metadata=pb.TrainingJobMetadata(name=f"{HOSTILE_NAME}{job_id}")
        )
        training.service.series[job_id] = [
            series(job_id, "accuracy", 0.1, 0.5, 0.9),
            series(job_id, f"loss {HOSTILE_NAME}", 3.0, 2.0, 1.0),
        ]
    training.service.files[1] = {"model.pt": b"weights", "sub/labels.json": b"[]"}
    return training


@pytest.fixture
def machines(training: ServerInThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machines:
    monkeypatch.chdir(tmp_path)
    return Machines(training.service)
