"""Axes have round numbers, and only as many as fit."""

import pytest

from training_service.web.scales import TimeScale


@pytest.mark.parametrize(
    ("seconds", "labels"),
    [
        (0.3, ["0", "100 ms", "200 ms"]),
        (42, ["0", "10 s", "20 s", "30 s"]),
        (7200, ["0", "30 min", "1 h", "1 h 30 min"]),
        (86_400 * 9, ["0", "2 d", "4 d", "6 d", "8 d"]),
    ],
)
def test_ticks_are_round_durations(seconds: float, labels: list[str]) -> None:
    assert [tick.label for tick in TimeScale(0, seconds).ticks()][: len(labels)] == labels


def test_ticks_lie_around_the_present() -> None:
    ticks = TimeScale(-900, 3600).ticks(0, "now")
    assert [(tick.label, round(tick.place)) for tick in ticks] == [
        ("−15 min", 0),
        ("now", 20),
        ("+15 min", 40),
        ("+30 min", 60),
        ("+45 min", 80),
    ]


@pytest.mark.parametrize("seconds", [0.01, 1, 3, 59, 3601, 86_401, 1e9])
def test_there_are_few_ticks(seconds: float) -> None:
    assert 1 <= len(TimeScale(0, seconds).ticks()) <= 11


def test_times_outside_are_at_the_edge() -> None:
    scale = TimeScale(10, 20)
    assert (scale.place(0), scale.place(15), scale.place(99)) == (0, 50, 100)
    assert TimeScale(10, 10).place(10) == 0
