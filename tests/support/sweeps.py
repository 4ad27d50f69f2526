"""A service whose jobs train one step at each status call, and settings of sweeps."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.support.fake_service import ENDED
from training_service._generated import training_service_pb2 as pb
from training_service.client.sweeps.settings import Sweep, checked

if TYPE_CHECKING:
    from tests.support.fake_service import FakeService


STEPS = 3


class Trainer:
    """Trains the jobs of a service: each status call makes the job take one step, which reports the metric
    `score`.

    The score is highest for the parameter X = 3. A job with FAIL fails at its first step; one with SILENT
    reports nothing.
    """

    def __init__(self, service: FakeService) -> None:
        self.service = service
        self.most_at_once = 0
        self.when: Callable[[str, bool], None] = lambda request, after_effect: None
        """Called with the name of each request before its effect, and for a submission again after its
        effect.
        """
        service.on_request = self._on_request

    @property
    def keys(self) -> list[str]:
        """The request keys of the jobs, in the order of the jobs."""
        return list(self.service._keys)

    def _on_request(self, request: Any, after_effect: bool) -> None:
        if isinstance(request, pb.TrainRequest) and after_effect:
            live = sum(job.status not in ENDED for job in self.service.jobs.values())
            self.most_at_once = max(self.most_at_once, live)
        if isinstance(request, pb.GetTrainingStatusRequest) and request.job_id in self.service.jobs:
            self._train(self.service.jobs[request.job_id])
        self.when(type(request).__name__, after_effect)

    def _train(self, job: pb.GetTrainingStatusResponse) -> None:
        parameters = job.metadata.parameters
        if job.status in ENDED:
            return
        if "FAIL" in parameters:
            job.status = pb.failure
            job.diagnosis.summary = "rank 0 ended with exit code 1"
            return
        step = job.progress.step + 1
        score = step - (float(parameters["X"]) - 3) ** 2
        if "SILENT" not in parameters:
            self._report(job, step, score)
        job.progress.step, job.status = step, pb.running
        if step == STEPS:
            job.status = pb.succeed
            manifest = {"test": {"score": score, "name": "x"}}
            self.service.files[job.job_id]["manifest.json"] = json.dumps(manifest).encode()

    def _report(self, job: pb.GetTrainingStatusResponse, step: int, score: float) -> None:
        all_series = self.service.series[job.job_id]
        if not all_series:
            all_series.append(pb.MetricSeries(job_id=job.job_id, name="score"))
        all_series[0].points.append(pb.MetricPoint(step=step, value=score, attempt=1))
        job.progress.metrics["score"] = score


def document(**changes: Any) -> dict[str, Any]:
    """Return the settings of a grid of five trials, of which the fourth is the best."""
    settings: dict[str, Any] = {
        "algorithm": "parabola",
        "dataset": "1",
        "version": "v1",
        "method": "grid",
        "objective": {"metric": "score", "direction": "maximize"},
        "space": {"X": [0, 1, 2, 3, 5]},
    }
    return {key: value for key, value in {**settings, **changes}.items() if value is not None}


def settings(**changes: Any) -> Sweep:
    return checked(document(**changes))


FILE = """
algorithm = "parabola"
dataset = "1"
version = "v1"
method = "grid"
[objective]
metric = "score"
direction = "maximize"
[space]
X = [0, 1, 2, 3, 5]
"""
