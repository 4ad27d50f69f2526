"""Metrics and artifacts of a job."""

from collections.abc import Iterable

from job_tracker.domain.job import Job
from job_tracker.domain.telemetry import Artifact, MetricSeries
from training_service._generated import training_service_pb2 as pb
from training_service.api.convert.requests import request_for
from training_service.api.convert.times import timestamp


def series_of(job_id: int, series: MetricSeries) -> pb.MetricSeries:
    """Return the message with a series of a metric."""
    points = (
        pb.MetricPoint(step=p.step, value=p.value, at=timestamp(p.at), attempt=p.attempt)
        for p in series.points
    )
    return pb.MetricSeries(job_id=job_id, name=series.name, points=points)


def made_by(job: Job, artifacts: Iterable[tuple[Artifact, bool]]) -> pb.GetTrainingArtifactsResponse:
    """Return the message with the job's artifacts and the origin of its model.

    The flag of each artifact says whether it can be fetched.
    """
    return pb.GetTrainingArtifactsResponse(
        job_id=job.id,
        artifacts=[
            pb.Artifact(
                name=made.name,
                uri=made.uri,
                kind=made.kind,
                size=made.size,
                sha256=made.sha256,
                fetchable=fetchable,
            )
            for made, fetchable in artifacts
        ],
        provenance=pb.Provenance(
            request=request_for(job),
            program=job.program,
            code_version=job.spec.code_version,
            data_uri=job.spec.data_uri,
        ),
    )
