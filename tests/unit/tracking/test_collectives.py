"""The process that is behind in a collective operation."""

from collections.abc import Sequence

import pytest

from job_tracker.reports.collectives import Collective
from job_tracker.tracking.collectives import behind


def at(
    number: int, operation: str = "all_reduce", *, done: bool = False, group: str = "default_pg"
) -> Collective:
    return Collective(group, number, operation, "[[3]]", done)


@pytest.mark.parametrize(
    ("known", "named"),
    [
        ([[at(42)], [at(42)], [at(41, done=True)]], {2}),
        ([[at(42)], [at(42)], [at(41)]], {2}),
        ([[at(42)], [at(42)], [at(42, "all_gather")]], {2}),
        ([[at(42)], [at(42)], [at(42)]], set()),
        ([[at(42, done=True)], [at(42, done=True)], [at(41, done=True)]], set()),  # none waits
        ([[at(42)], [at(42, "all_gather")]], set()),  # which of two is wrong does not show
        ([[at(42)], [at(42)], []], set()),  # it does not use PyTorch, or an old one
        (
            [[at(1)], [at(1)], [at(1, done=True, group="pipe 2")]],
            {2},
        ),  # it has not begun in the default group
        # 0 and 1 wait for 2 in one group, and 3 waits for 1 in another: 2 waits for none.
        (
            [
                [at(5, group="a")],
                [at(5, group="a"), at(7, group="b", done=True)],
                [at(4, group="a", done=True)],
                [at(8, group="b")],
            ],
            {2},
        ),
        # Two wait for each other in different groups.
        (
            [
                [at(5, group="a"), at(1, group="b", done=True)],
                [at(4, group="a", done=True), at(2, group="b")],
            ],
            {0, 1},
        ),
    ],
)
def test_the_process_is_named_for_which_others_wait(
    known: Sequence[Sequence[Collective]], named: set[int]
) -> None:
    assert set(behind(dict(enumerate(known)))) == named


def test_sizes_may_differ_except_in_all_reduce() -> None:
    def sized(operation: str, sizes: str) -> list[Collective]:
        return [Collective("default_pg", 3, operation, sizes, done=False)]

    assert not behind({0: sized("scatter", "[]"), 1: sized("scatter", "[]"), 2: sized("scatter", "[[1]]")})
    late = behind(
        {0: sized("all_reduce", "[[1]]"), 1: sized("all_reduce", "[[1]]"), 2: sized("all_reduce", "[[2]]")}
    )
    assert late == {2: "it is in #3 all_reduce [[2]] of default_pg, and others are in #3 all_reduce [[1]]"}
