"""A job's history as a picture: its states over time, its attempts, and the events in them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import groupby
from typing import Final

from job_tracker.domain.job import Job, JobState, Move
from job_tracker.domain.progress import Saved, Saves
from training_service.web.scales import Tick, TimeScale
from training_service.web.showing import duration, number

_THINNEST: Final = 0.3
"""The smallest width of a state, in percent, so that a short state can be seen."""
_MOST_PARTS: Final = 400
_LEAST_FOR_NAME: Final = 9.0
"""The part of the width that the name of an attempt needs, in percent."""


class Event(StrEnum):
    """A kind of event that has a mark."""

    SAVE = "checkpoint"
    RESTART = "restart of a rank"
    FAILURE = "failure"
    PREEMPTION = "preemption"
    EVICTION = "eviction"


@dataclass(frozen=True, slots=True)
class Span:
    """The time that the job was in one state. `left` and `width` are in percent of the picture's width."""

    state: JobState
    attempt: int
    left: float
    width: float
    label: str


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark of an event."""

    event: Event
    place: float
    at: datetime
    label: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """The picture, for its template."""

    spans: Sequence[Span]
    marks: Sequence[Mark]
    attempts: Sequence[Tick]
    """The beginnings of attempts; empty if there is only one."""
    ticks: Sequence[Tick]
    totals: Mapping[JobState, str]
    """The total time that the job was in each state."""
    events: Mapping[Event, int]
    """The number of events of each kind."""
    begin: datetime
    end: datetime
    text: str
    """The picture in words."""


def timeline_of(job: Job, now: datetime) -> Timeline:
    """Return the picture of a job's history, up to the job's end; up to `now` if it has not ended."""
    moves = [move for move in job.history if not move.is_restart]
    begin = moves[0].at if moves else job.submitted_at
    end = max(begin, job.finished_at or now)
    scale = TimeScale(begin.timestamp(), max(end.timestamp(), begin.timestamp() + 1e-3))
    spans, words = [], []
    seconds: dict[JobState, float] = {}
    for move, following in zip(moves, [*moves[1:], None], strict=True):
        if move.state.is_terminal:
            continue
        until = following.at if following else end
        lasted = max(0.0, (until - move.at).total_seconds())
        seconds[move.state] = seconds.get(move.state, 0.0) + lasted
        attempt = f" (attempt {move.attempt})" if move.attempt > 1 else ""
        left = scale.place(move.at.timestamp())
        width = max(_THINNEST, scale.place(until.timestamp()) - left)
        words.append(f"{move.state}{attempt} {duration(lasted)}")
        spans.append(Span(move.state, move.attempt, min(left, 100.0 - width), width, words[-1]))
    marks = [
        Mark(event, scale.place(at.timestamp()), at, label) for event, at, label in _events(job, job.history)
    ]
    if job.state.is_terminal:
        words.append(str(job.state))
    kinds = [mark.event for mark in marks]
    events = {event: kinds.count(event) for event in Event if event in kinds}
    if Event.SAVE in events:
        events[Event.SAVE] = max(events[Event.SAVE], _number_of_saves(job))
    return Timeline(
        spans=spans[-_MOST_PARTS:],
        marks=marks[-_MOST_PARTS:],
        attempts=_attempts(spans),
        ticks=scale.ticks(),
        totals={state: duration(lasted) for state, lasted in seconds.items()},
        events=events,
        begin=begin,
        end=end,
        text=", then ".join(words[-20:]),
    )


def _events(job: Job, moves: Sequence[Move]) -> Iterator[tuple[Event, datetime, str]]:
    for move in moves:
        if move.is_restart and move.diagnosis is not None:
            yield Event.RESTART, move.at, f"Restart: {move.diagnosis.summary}"
        elif move.diagnosis is not None:
            yield Event.FAILURE, move.at, f"{str(move.state).capitalize()}: {move.diagnosis.summary}"
        elif move.preemption is not None:
            yield Event.PREEMPTION, move.at, move.preemption.sentence(job.spec.project)
        elif move.eviction is not None:
            yield Event.EVICTION, move.at, move.eviction.sentence()
        if move.saved is not None:
            yield from _saved(move.saved, move.saves)
    if job.progress is not None and job.progress.saved is not None:
        yield from _saved(job.progress.saved, job.progress.saves)


def _saved(last: Saved, saves: Saves) -> Iterator[tuple[Event, datetime, str]]:
    for step, at in saves.some:
        if (step, at) != (last.step, last.at.timestamp()):
            yield Event.SAVE, datetime.fromtimestamp(at, UTC), f"Checkpoint: step {number(step)}"
    yield Event.SAVE, last.at, f"Last checkpoint of the attempt: step {number(last.step)}"


def _number_of_saves(job: Job) -> int:
    """Return how many checkpoints the job has saved.

    The picture shows only some of them if there are many.
    """
    every = [move.saves for move in job.history] + ([job.progress.saves] if job.progress else [])
    return sum(saves.count for saves in every)


def _attempts(spans: Sequence[Span]) -> Sequence[Tick]:
    """Return the places where attempts begin; none if there is only one attempt.

    Attempts without room for their names are left out.
    """
    found, free = list[Tick](), 0.0
    launched = [span for span in spans if span.state.is_live]
    for attempt, parts in groupby(launched, key=lambda span: span.attempt):
        first = next(parts)
        if first.left >= free and first.left <= 100.0 - _LEAST_FOR_NAME:
            found.append(Tick(first.left, f"attempt {attempt}"))
            free = first.left + _LEAST_FOR_NAME
    return found if len({span.attempt for span in launched}) > 1 else []
