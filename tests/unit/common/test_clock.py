"""The clock that counts only the time in which this process was awake."""

from job_tracker.common.clock import AwakeClock


def test_a_pause_of_the_process_counts_for_two_seconds_only() -> None:
    now = 50.0
    clock = AwakeClock(longest=2, clock=lambda: now)
    now += 1.5
    assert clock() == 1.5
    clock.tick()
    now += 3600
    assert clock() == 3.5
    clock.tick()
    now += 1
    assert clock() == 4.5
    now -= 3600  # a clock that is set back
    assert clock() == 3.5
