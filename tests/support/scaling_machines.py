"""A service whose jobs follow a law of scaling."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.support.fake_service import ENDED
from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from tests.support.fake_service import FakeService


class Machines:
    """A service whose jobs follow Amdahl's law: a serial part of 5 %, 100 examples/s on one instance."""

    def __init__(self, service: FakeService) -> None:
        self.service = service
        self.most_at_once = 0
        self.failing: set[int] = set()
        self.endless = False
        self.noise: dict[int, float] = {}
        self.when: Callable[[str, bool], None] = lambda request, after_effect: None
        """Called with the name of each request, and for a submission again after its effect."""
        service.on_request = self._on_request

    @property
    def keys(self) -> list[str]:
        return list(self.service._keys)

    def _on_request(self, request: Any, after_effect: bool) -> None:
        jobs = self.service.jobs
        if isinstance(request, pb.TrainRequest) and after_effect:
            live = sum(job.status not in ENDED for job in jobs.values())
            self.most_at_once = max(self.most_at_once, live)
        if isinstance(request, pb.GetTrainingStatusRequest) and request.job_id in jobs:
            self._train(jobs[request.job_id])
        self.when(type(request).__name__, after_effect)

    def _train(self, job: pb.GetTrainingStatusResponse) -> None:
        if job.status in ENDED:
            return
        parameters = job.metadata.parameters
        count = int(parameters["PARALLEL_INSTANCES"])
        if count in self.failing:
            job.status, job.diagnosis.summary = pb.failure, "rank 1 was preempted"
            return
        batch = int(parameters.get("BATCH_SIZE", "100"))
        seconds = 0.05 + batch / 100 * 0.95 / count + self.noise.get(count, 0)
        if parameters.get("BUCKET_MB") == "1":
            seconds *= 1.25
        rates = [batch / seconds * noise for noise in (0.2, 1.0, 1.0, 1.0, 3.0)]
        points = [pb.MetricPoint(step=n, value=rate, attempt=1) for n, rate in enumerate(rates, 1)]
        series = pb.MetricSeries(job_id=job.job_id, name="examples_per_second", points=points)
        losses = [pb.MetricPoint(step=n, value=9.0 - n, attempt=1) for n in range(1, 6)]
        self.service.series[job.job_id] = [
            series,
            pb.MetricSeries(job_id=job.job_id, name="loss", points=losses),
        ]
        if count > 1:  # for each other instance, a rank waits during a tenth of each step
            beside = {"step_seconds": seconds, "waiting_seconds": seconds * (count - 1) / 10}
            for name, each in {**beside, "gradient_sent_bytes": 2e6}.items():
                found = [pb.MetricPoint(step=n, value=each, attempt=1) for n in range(1, 4)]
                self.service.series[job.job_id].append(
                    pb.MetricSeries(job_id=job.job_id, name=name, points=found)
                )
        job.status = pb.running if self.endless else pb.succeed
