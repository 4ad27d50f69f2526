"""Converts requests for logs from messages, and pieces of logs to messages."""

from job_tracker.logs.reader import LogPiece, LogRequest
from training_service._generated import training_service_pb2 as pb
from training_service.api.convert.times import moment


def logs_of(message: pb.GetTrainingLogsRequest) -> tuple[int, LogRequest]:
    """Return the id of the job, and which part of its log is requested.

    Raises InvalidField if `since` is not a valid time.
    """
    return message.job_id, LogRequest(
        rank=message.rank,
        all_ranks=message.all_ranks,
        attempt=message.attempt,
        follow=message.follow,
        tail_lines=message.tail_lines if message.HasField("tail_lines") else None,
        since=moment("since", message.since) if message.HasField("since") else None,
        position=message.position,
    )


def log_of(piece: LogPiece, *, timestamps: bool) -> pb.GetTrainingLogsResponse:
    """Return the message with a piece of a log."""
    return pb.GetTrainingLogsResponse(
        text=piece.timed_text if timestamps else piece.text,
        rank=piece.rank,
        attempt=piece.attempt,
        position=str(piece.position),
    )
