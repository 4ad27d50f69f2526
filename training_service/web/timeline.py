"""A job's history as a picture: its states over time, and marks for failures, restarts and stops."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from job_tracker.domain.job import Job, JobState, Move
from training_service.web.showing import duration

WIDTH: Final = 1000.0
_THINNEST: Final = 2.0
"""A state is at least this wide, so that a short one can be seen."""
_MOST_PARTS: Final = 400


@dataclass(frozen=True, slots=True)
class Span:
    """A state from one time to another, with its place in the picture."""

    state: JobState
    attempt: int
    left: float
    width: float
    label: str


@dataclass(frozen=True, slots=True)
class Mark:
    """The restart of a rank, or the failure of an attempt."""

    place: float
    label: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """The picture, for its template."""

    spans: Sequence[Span]
    marks: Sequence[Mark]
    begin: datetime
    end: datetime
    text: str
    """The same in words."""


def timeline_of(job: Job, now: datetime) -> Timeline:
    """Return the picture of a job's history until now, or until its end."""
    moves = [move for move in job.history if not move.is_restart]
    begin = moves[0].at if moves else job.submitted_at
    end = max(begin, job.finished_at or now)
    whole = (end - begin).total_seconds() or 1.0

    def place(at: datetime) -> float:
        return min(1.0, max(0.0, (at - begin).total_seconds() / whole)) * WIDTH

    spans, words = [], []
    for move, following in zip(moves, [*moves[1:], None], strict=True):
        if move.state.is_terminal:
            continue
        until = following.at if following else end
        lasted = duration(max(0.0, (until - move.at).total_seconds()))
        attempt = f" (attempt {move.attempt})" if move.attempt > 1 else ""
        left = place(move.at)
        width = max(_THINNEST, place(until) - left)
        words.append(f"{move.state}{attempt} {lasted}")
        spans.append(Span(move.state, move.attempt, min(left, WIDTH - width), width, words[-1]))
    marks = [Mark(place(move.at), label) for move in job.history if (label := _label(move, job.spec.project))]
    if job.state.is_terminal:
        words.append(str(job.state))
    return Timeline(spans[-_MOST_PARTS:], marks[-_MOST_PARTS:], begin, end, ", then ".join(words[-20:]))


def _label(move: Move, project: str) -> str:
    """Return what a mark says about an attempt that failed or was stopped before its end; "" for others."""
    if move.diagnosis is not None:
        return f"{'restart' if move.is_restart else move.state}: {move.diagnosis.summary}"
    return move.sentence(project)
