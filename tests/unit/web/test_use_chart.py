"""The picture of use over time: an area, with the line of the quota."""

from job_tracker.scheduling.use_history import SLOT_SECONDS, Point
from training_service.web.use_chart import use_charts

HOUR = 12 * SLOT_SECONDS


def point(slot: int, held: float, quota: float | None = None) -> Point:
    return Point(at=float(slot * SLOT_SECONDS), held=held, quota=quota, waiting=slot)


def test_what_is_not_known_is_a_gap_and_only_those_with_a_history_are_drawn() -> None:
    history = {"vision": [point(0, 0.5, 0.25), point(3, 1.0, 0.75)], "idle": []}
    [chart], ticks = use_charts(history, HOUR, HOUR)
    assert chart.name == "vision"
    assert chart.held == "M0.00 100V50.0H8.33V100zM25.00 100V0.0H33.33V100z"
    assert chart.quota == "M0 75.0H25.00V25.0H100"
    assert (chart.most_held, chart.last_quota, chart.most_waiting) == (1.0, 0.75, 3)
    assert chart.text == "vision held at most 100 % of the capacity, its quota is 75 %"
    assert ticks


def test_a_steady_use_is_one_rectangle() -> None:
    steady = [point(slot, 0.5, 0.5) for slot in range(12)]
    [chart], _ = use_charts({"vision": steady}, HOUR, HOUR)
    assert chart.held == "M0.00 100V50.0H100.00V100z"
    assert chart.quota == "M0 50.0H100"


def test_the_picture_of_a_busy_week_is_short() -> None:
    busy = [point(slot, slot % 7 / 7, slot % 3 / 3) for slot in range(336)]
    [chart], _ = use_charts({"vision": busy}, 336 * SLOT_SECONDS, 336 * SLOT_SECONDS)
    assert chart.held.count("M") == 1
    assert chart.held.count("V") == 337
    assert len(chart.held) + len(chart.quota) < 8_000
