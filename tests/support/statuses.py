"""Statuses of jobs, and text as displayed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import Console, RenderableType

from training_service._generated import training_service_pb2 as pb

Status = pb.GetTrainingStatusResponse
NOW = datetime(2025, 11, 21, 12, 0, 0, tzinfo=UTC)
HOSTILE = "[red]a\x1b[2J\r\nb\u202ec\x9b1m\tüñ😀"
TAMED = r"[red]a\x1b[2J\r\nb\u202ec\x9b1m\tüñ😀"


def before_now(**span: float) -> Timestamp:
    timestamp = Timestamp()
    timestamp.FromDatetime(NOW - timedelta(**span))
    return timestamp


def drawn(picture: RenderableType, width: int = 100) -> str:
    console = Console(width=width, markup=False, highlight=False, emoji=False, color_system=None)
    with console.capture() as captured:
        console.print(picture)
    return captured.get()


def metadata(**fields: object) -> pb.TrainingJobMetadata:
    return pb.TrainingJobMetadata(
        **{"algorithm": "bert", "dataset_id": "questions", "train_data_version_hash": "3f2a", **fields}  # type: ignore[arg-type]
    )


RUNNING = Status(
    job_id=3,
    status=pb.running,
    metadata=metadata(name="nightly", parameters={"LR": "0.1", "EPOCHS": "5"}),
    attempt=2,
    submitted_at=before_now(minutes=4),
    started_at=before_now(minutes=2, seconds=5),
    instances=2,
    ranks=[
        pb.RankStatus(rank=0, role="master", phase=pb.RANK_PHASE_RUNNING),
        pb.RankStatus(rank=1, role="worker", phase=pb.RANK_PHASE_FAILED, exit_code=137),
    ],
    progress=pb.Progress(
        step=45, total_steps=100, epoch=2, total_epochs=5, metrics={"loss": 0.31249, "accuracy": 0.88}
    ),
)
FAILED = Status(
    job_id=4,
    status=pb.failure,
    metadata=metadata(),
    diagnosis=pb.Diagnosis(
        category="out_of_memory",
        summary="A process used more memory than it may.",
        detail="epoch 1\n\x1b[31mKilled",
        resolution="Set a smaller BATCH_SIZE.",
        rank=1,
        retryable=True,
    ),
)


RETRYING = Status(
    job_id=5,
    status=pb.queuing,
    metadata=metadata(),
    attempt=2,
    max_attempts=3,
    next_attempt_at=before_now(seconds=-20),
    moves=[
        pb.Move(status=pb.queuing, at=before_now(minutes=9)),
        pb.Move(status=pb.launch, at=before_now(minutes=8), attempt=1),
        pb.Move(
            status=pb.queuing,
            at=before_now(minutes=8),
            attempt=1,
            diagnosis=pb.Diagnosis(summary="No quota."),
        ),
        pb.Move(status=pb.queuing, at=before_now(minutes=7), attempt=1),
        pb.Move(status=pb.launch, at=before_now(minutes=6), attempt=2),
        pb.Move(status=pb.running, at=before_now(minutes=5), attempt=2),
        pb.Move(
            status=pb.queuing,
            at=before_now(minutes=1),
            attempt=2,
            diagnosis=pb.Diagnosis(summary="The node\nis lost."),
        ),
    ],
)
