"""The attempts that have stalled, and the process that did not arrive."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_tracker.domain.diagnosis import Category
from job_tracker.domain.pace import Activity
from job_tracker.reports.collectives import DEFAULT_GROUP, Collective
from job_tracker.reports.ranks import Outside, RankReport, Signs, Watched
from job_tracker.tracking.stalls import (
    ASIDE_SECONDS,
    BUSY_SECONDS,
    PATIENCE_SECONDS,
    Stall,
    explained,
    is_proven,
    is_stall,
    missing,
    slowness,
    standstill_of,
)
from tests.support.jobs import NOON

NOW = 100_000.0


def signs(process: int = 0, *, still: float = 0.0, unheard: float = 0.0, **values: Any) -> Signs:
    """Return signs of a process that trains: its last step and its last report were these seconds ago."""
    stacks = values.pop("stacks", "")
    active = NOW - values.pop("inactive", still)
    sent = RankReport(**{"process": process, "step": 7, "longest_step": 0.5, **values})
    return Signs(sent, NOW - unheard, NOON, NOW - still, active, stacks)


def group(members: Sequence[Signs], *, deadline: float | None = None, moved: float = 0.0) -> Watched:
    known = {each.last.process: each for each in members}
    return Watched(len(members), 1, moved, deadline, known, has_reported=bool(members))


def stall_of(watched: Watched, now: float = NOW) -> Stall | None:
    still = standstill_of(watched, now)
    return still if still is not None and is_stall(still, watched, now, watched.pause) else None


@pytest.mark.parametrize(
    ("members", "deadline", "stalls"),
    [
        ([signs(still=29)], None, False),
        ([signs(still=31)], None, True),
        ([signs(still=31), signs(1, still=29)], None, False),  # one of the processes continues
        ([signs(still=31), signs(1, still=31)], None, True),
        ([signs(still=4), signs(1, still=4)], 3.0, True),
        ([signs(still=4), signs(1, still=4)], 5.0, False),
        ([signs(still=31, longest_step=20)], None, False),  # three steps are 60 s
        ([signs(still=61, longest_step=20)], None, True),
        ([signs(still=31, inactive=30)], None, True),  # after its last step, it came to where it hangs
        ([signs(still=31, inactive=29)], None, False),
        ([signs(still=60, longest_step=0)], None, False),  # the first step may take longer
        ([signs(still=ASIDE_SECONDS + 1, longest_step=0)], None, True),
        ([signs(still=600, activity=Activity.EVALUATION)], 3.0, False),
        ([signs(still=600), signs(1, still=600, activity=Activity.SAVING)], 3.0, False),
        ([signs(still=ASIDE_SECONDS + 1, activity=Activity.COMPILING)], 3.0, True),
        ([signs(still=9e6), signs(1, still=9e6, activity=Activity.DONE)], 3.0, False),
        ([signs(still=600, inactive=5)], None, False),  # an evaluation that is not declared
        ([signs(still=ASIDE_SECONDS + 1, inactive=5)], None, False),  # or a very long one
        ([signs(still=7200, inactive=5, step=1, longest_step=0)], None, False),  # steps are epochs of hours
        ([signs(still=BUSY_SECONDS + 1, inactive=5)], None, True),
        ([signs(still=600, inactive=5)], 3.0, True),  # the job's own deadline is exact
        ([signs(still=600, unheard=60), signs(1, still=600, unheard=60)], None, False),  # the network is gone
        ([signs(still=600, unheard=60), signs(1, still=600)], None, True),
        ([signs(still=600, unheard=60)], 3.0, True),
        ([signs(still=600, step=None)], None, False),  # it does not report steps
        ([], None, False),
    ],
)
def test_an_attempt_stalls_if_no_process_makes_progress_for_too_long(
    members: Sequence[Signs], deadline: float | None, stalls: bool
) -> None:
    assert (stall_of(group(members, deadline=deadline)) is not None) is stalls


@pytest.mark.parametrize(
    ("members", "deadline", "patience"),
    [
        (
            [signs(still=45), signs(1, still=45)],
            None,
            PATIENCE_SECONDS,
        ),  # one batch loads for long
        ([signs(still=700, longest_step=230)], None, 690),
        ([signs(still=45)], 30.0, 30),  # a deadline that someone has set is exact
    ],
)
def test_a_suspicion_without_proof_counts_only_after_patience_unless_there_is_a_deadline(
    members: Sequence[Signs], deadline: float | None, patience: float
) -> None:
    stall = stall_of(group(members, deadline=deadline))
    assert stall is not None
    assert stall.patience == pytest.approx(patience)
    assert stall.is_over is (stall.seconds > patience)


def test_while_the_main_thread_moves_it_is_known_when_the_attempt_would_have_stalled() -> None:
    still = standstill_of(group([signs(still=45), signs(1, still=45, inactive=10)]), NOW)
    assert still is not None
    assert (still.seconds, still.limit) == (45, 65)


def operation(number: int, *, done: bool = False) -> Collective:
    return Collective(group=DEFAULT_GROUP, number=number, operation="all_reduce", sizes="[[3]]", done=done)


@pytest.mark.parametrize(
    ("ranks", "proven"),
    [
        (((41, False, True), (42, False, True)), True),  # each waits for the other
        (((42, False, True), (42, False, True)), False),  # the network may be slow
        (((41, True, False), (42, False, True)), True),  # rank 0 stands elsewhere
        (((41, False, False), (42, False, False)), False),  # it is not known that they wait
    ],
)
def test_processes_that_wait_for_each_other_in_different_operations_are_a_proof(
    ranks: Sequence[tuple[int, bool, bool]], proven: bool
) -> None:
    watched = group([signs(n, waiting=waiting) for n, (_, _, waiting) in enumerate(ranks)])
    for process, (number, done, _) in enumerate(ranks):
        watched.signs[process].collectives = (operation(number, done=done),)
    assert is_proven(watched) is proven


TRAINING = "Thread MainThread:\n  train.py:7 in main\n"
IN_COLLECTIVE = TRAINING + "  /lib/torch/distributed/distributed_c10d.py:3252 in all_reduce\n"


@pytest.mark.parametrize(
    ("ranks", "proven", "guilty"),
    [
        (((41, True, TRAINING), (42, False, IN_COLLECTIVE)), False, [0]),  # rank 0 may still move
        (((42, False, IN_COLLECTIVE), (42, False, IN_COLLECTIVE)), False, []),
        (((41, False, IN_COLLECTIVE), (42, False, IN_COLLECTIVE)), True, [0]),
        (((41, True, TRAINING), (42, False, TRAINING)), False, [0]),  # an operation in the background
        (((41, True, IN_COLLECTIVE), (41, True, TRAINING)), False, []),  # its operation is done
    ],
)
def test_a_process_that_stands_in_a_collective_operation_waits_also_if_the_kit_does_not_know(
    ranks: Sequence[tuple[int, bool, str]], proven: bool, guilty: list[int]
) -> None:
    watched = group([signs(n, stacks=stack) for n, (_, _, stack) in enumerate(ranks)])
    for process, (number, done, _) in enumerate(ranks):
        watched.signs[process].collectives = (operation(number, done=done),)
    assert (is_proven(watched), missing(watched, ())) == (proven, guilty)


@pytest.mark.parametrize(
    ("call", "proven"),
    [
        ("/home/ada/train.py:9 in read_batch", True),
        ("/lib/torch/serialization.py:1203 in _save", False),
        ("/lib/torch/_inductor/codecache.py:88 in compile", False),
        ("/lib/torch/distributed/checkpoint/state_dict_saver.py:9 in save", False),
        ("/lib/jax/_src/compiler.py:9 in backend_compile", False),
    ],
)
@pytest.mark.parametrize("from_outside", [False, True])
def test_a_process_that_is_seen_to_save_or_compile_is_no_proof(
    call: str, proven: bool, from_outside: bool
) -> None:
    stacks = f"{TRAINING}  {call}\n  /lib/other.py:1 in write\n"
    watched = group([signs(stacks="" if from_outside else stacks), signs(1, waiting=True)])
    watched.outside = {0: Outside("runs", stacks)} if from_outside else {}
    assert is_proven(watched) is proven
    assert missing(watched, ()) == [0]


def test_a_process_that_has_not_answered_may_still_do_something() -> None:
    watched = group([signs(n, waiting=True) for n in range(2)])
    for process, number in enumerate((41, 42)):
        watched.signs[process].collectives = (operation(number),)
    assert is_proven(watched)
    watched.size = 3
    assert not is_proven(watched)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_process_that_is_seen_to_be_stopped_is_a_proof(stopped: bool) -> None:
    watched = group([signs(), signs(1)])
    watched.outside = {1: Outside("process 7 (python)", is_stopped=stopped)}
    assert is_proven(watched) is stopped


def test_without_reports_of_steps_only_a_deadline_stops_the_attempt() -> None:
    printing = Watched(1, 1, NOW - 100, has_reported=True)
    assert stall_of(printing) is None
    assert stall_of(replace(printing, deadline=99)) is not None
    assert stall_of(replace(printing, deadline=101)) is None
    assert stall_of(replace(printing, deadline=99, has_reported=False)) is None  # it may yet start


def test_the_others_may_wait_for_a_restarted_rank() -> None:
    waiting = group([signs(still=600, waiting=True), signs(1, still=600, step=None, longest_step=0)])
    assert stall_of(waiting) is not None
    assert stall_of(replace(waiting, anew={1})) is None
    for_long = group([signs(still=ASIDE_SECONDS + 1), signs(1, still=600, step=None, longest_step=0)])
    assert stall_of(replace(for_long, anew={1})) is not None


def test_no_attempt_stalls_after_a_process_was_done_also_if_only_an_earlier_leader_heard_that() -> None:
    saving = group([signs(still=600)])
    assert stall_of(replace(saving, over={1})) is None
    assert stall_of(replace(saving, over={0})) is not None  # the process trains again


def test_after_the_last_step_there_is_time_to_save_the_model() -> None:
    saving = replace(group([signs(still=600), signs(1, still=600, waiting=True)]), has_all_steps=True)
    assert stall_of(saving) is None
    assert stall_of(replace(saving, deadline=3.0)) is not None
    hangs = replace(group([signs(still=ASIDE_SECONDS + 1)]), has_all_steps=True)
    assert stall_of(hangs) is not None


def test_any_report_of_the_attempt_counts_as_progress() -> None:
    assert stall_of(group([signs(still=600)], moved=NOW - 5)) is None


@pytest.mark.parametrize(
    ("members", "quiet", "guilty"),
    [
        ([signs(), signs(1, waiting=True), signs(2, waiting=True)], set(), [0]),
        ([signs(step=8, waiting=True), signs(1), signs(2, step=8, waiting=True)], set(), [1]),
        ([signs(), signs(1), signs(2)], {2}, [2]),
        ([signs(), signs(1)], {0, 1}, []),
        ([signs(), signs(1)], set(), []),
        ([signs(waiting=True), signs(1, waiting=True)], set(), []),
        (
            [
                signs(stacks="Thread MainThread:\n  a.py:1 in wait\n"),
                signs(1, stacks="Thread MainThread:\n  a.py:2 in wait\nThread x:\n  b.py:1 in f\n"),
                signs(2, stacks="Thread MainThread:\n  a.py:9 in load\n"),
            ],
            set(),
            [2],
        ),
    ],
)
def test_the_process_that_did_not_arrive_is_named(
    members: Sequence[Signs], quiet: set[int], guilty: list[int]
) -> None:
    assert missing(group(members), quiet) == guilty


def test_the_diagnosis_names_the_rank_and_where_it_stood() -> None:
    stuck = signs(3, still=40, stacks="Thread MainThread:\n  train.py:4 in main\n  load.py:9 in read\n")
    others = [
        signs(n, still=40, waiting=True, stacks="Thread MainThread:\n  a.py:1 in wait\n") for n in (0, 1, 2)
    ]
    watched = group([*others, stuck])
    stall = stall_of(watched)
    assert stall is not None
    why = explained(stall, watched, set())
    assert (why.category, why.rank, why.retryable) == (Category.STALLED, 3, True)
    assert why.summary.startswith("Rank 3 did not arrive where the others wait after step 7")
    assert why.summary.endswith("It stands at load.py:9 in read.")
    assert why.detail.startswith(
        "Rank 3: \ntrain.py:4 in main\nload.py:9 in read\nRanks 0, 1, 2: \na.py:1 in wait"
    )
    watched.per_rank = 2
    assert explained(stall, watched, set()).rank == 1  # the instance of the process


def test_the_diagnosis_names_no_step_of_a_rank_that_does_not_report_its_steps() -> None:
    stall = stall_of(group([signs(still=40)]))
    assert stall is not None
    watched = group([])
    watched.size = 3
    waits, sleeps = "Thread MainThread:\n  a.py:1 in wait\n", "Thread MainThread:\n  a.py:9 in rest\n"
    watched.outside = {
        rank: Outside("process 7 (python)", stacks) for rank, stacks in enumerate((waits, sleeps, waits))
    }
    why = explained(stall, watched, set())
    assert why.summary.startswith("Rank 1 did not arrive where the others wait (process 7 (python)): ")


def test_the_diagnosis_of_a_large_group_is_bounded() -> None:
    calls = "  a.py:1 in wait\n" * 1000
    members = [signs(n, still=40, stacks=f"Thread MainThread:\n  b.py:{n} in f\n{calls}") for n in range(500)]
    watched = group(members)
    watched.size = 600
    stall = stall_of(watched)
    assert stall is not None
    why = explained(stall, watched, {7})
    assert len(why.detail) < 12_000
    assert why.detail.startswith("Rank 7: has given no sign\nRank 0: \n")
    assert "The others stand at 495 more places.\nRanks 500, 501, " in why.detail
    assert why.detail.endswith("and 80 more: no report of its own")


def test_a_process_that_only_an_earlier_leader_heard_is_named() -> None:
    watched = group([signs(still=40, waiting=True)])
    watched.size, watched.expected = 3, {0: 7, 1: 6}
    stall = stall_of(watched)
    assert stall is not None
    why = explained(stall, watched, {1})
    assert why.rank == 1
    assert why.summary.startswith("Rank 1 has given no sign since it reported step 6")
    assert why.detail == "Rank 1: has given no sign\nRank 0: \nno stack\nRank 2: no report of its own"


def test_a_process_is_slow_by_its_own_work_not_by_its_waiting() -> None:
    members = [signs(n, step_seconds=1.3, waiting_seconds=0.3) for n in range(3)]
    slow = signs(3, step_seconds=1.3, waiting_seconds=0.0)
    assert slowness(group([*members, slow])) == pytest.approx({0: 1, 1: 1, 2: 1, 3: 1.3})
    assert slowness(group(members[:1])) == {}
    fast, slow = signs(step_seconds=1.3, waiting_seconds=0.3), signs(1, step_seconds=1.3)
    assert slowness(group([fast, slow])) == pytest.approx({0: 1, 1: 1.3})


_SIGNS = st.builds(
    signs,
    process=st.integers(0, 7),
    still=st.floats(0, 5000),
    unheard=st.floats(0, 5000),
    inactive=st.floats(0, 5000),
    step=st.none() | st.integers(0, 10),
    longest_step=st.floats(0, 1e9),
    step_seconds=st.floats(0, 1e9),
    waiting_seconds=st.floats(0, 1e9),
    waiting=st.booleans(),
    activity=st.sampled_from(Activity),
    stacks=st.text(max_size=40),
)
_GROUPS = st.builds(group, st.lists(_SIGNS, max_size=6), deadline=st.none() | st.floats(1, 5000))


@given(_GROUPS, st.floats(0, 5000), st.sets(st.integers(0, 7)))
def test_a_verdict_is_sound_for_any_reports_of_processes(
    watched: Watched, later: float, quiet: set[int]
) -> None:
    stall = stall_of(watched)
    quiet &= set(watched.signs)
    guilty = missing(watched, quiet)
    assert set(guilty) <= set(watched.signs)
    assert len(guilty) < max(1, len(watched.signs))  # never all of them
    assert not quiet or not guilty or set(guilty) == quiet
    assert all(
        factor >= 0 or watched.signs[process].last.waiting_seconds > 0
        for process, factor in slowness(watched).items()
    )
    if stall is None:
        return
    assert stall.seconds > stall.limit >= min(watched.deadline or 30, 30)
    assert explained(stall, watched, quiet).category is Category.STALLED
    for each in watched.signs.values():  # a step of any process ends the stall
        if each.last.step is not None:
            moved = {**watched.signs, each.last.process: replace(each, moved=NOW)}
            assert stall_of(replace(watched, signs=moved)) is None
    if watched.deadline is not None:
        assert stall_of(watched, NOW + later) is not None  # without progress, it stays a stall
