"""The machines that are slow for several jobs."""

from collections.abc import Collection, Mapping

import pytest

from job_tracker.reports.ranks import RankReport, Signs, Watched
from job_tracker.tracking.machines import slow_machines
from tests.support.jobs import NOON


def of(machines: str, *slow: int, per_rank: int = 1) -> Watched:
    """Return an attempt with a rank on each of these machines (?: unknown), and these slow processes."""
    size = per_rank * len(machines)
    signs = {
        process: Signs(RankReport(process=process, step=9, step_seconds=1), 0, NOON, 0, 0)
        for process in range(size)
    }
    for process in slow:
        signs[process].slow_since = NOON
    return Watched(size, per_rank, 0, None, signs, machines=[each.strip("?") for each in machines])


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        ([of("abc", 1), of("xb", 1)], {"b": 2}),
        ([of("abc", 1), of("xb", 1), of("bcd", 0, 2)], {"b": 3}),
        ([of("abc", 1), of("abc")], {}),  # one job only
        ([of("abc", 1), of("abc", 2)], {}),  # each is slow elsewhere
        ([of("bb", 1), of("bb", 1)], {}),  # another rank there is fast
        ([of("ab", 2, 3, per_rank=2), of("ab", 1)], {"b": 2}),
        ([of("ab", 2, per_rank=2), of("ab", 1)], {}),  # one of two processes there is fast
        ([of("??", 1), of("??", 1)], {}),  # the machines are unknown
        ([of(""), of("ab", 1)], {}),
    ],
)
def test_a_machine_is_slow_if_all_processes_there_are_in_several_jobs(
    attempts: Collection[Watched], expected: Mapping[str, int]
) -> None:
    assert slow_machines(attempts) == expected
