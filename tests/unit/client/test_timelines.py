"""Measured passes, laid out by dependency."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.timelines import Order, gpipe, pipeline
from training_service.client.errors import ServerError
from training_service.client.timelines import MOST_BYTES, MOST_PASSES, Timeline, read

EQUAL = {"forward": 1.0, "backward": 2.0}


def of(content: object) -> Timeline:
    return read([json.dumps(content).encode()])


def test_each_pass_starts_when_its_rank_and_those_that_it_needs_are_done() -> None:
    timeline = of(gpipe(2, 2))
    assert [(box.rank, box.kind, box.micro_batch, box.start, box.end) for box in timeline.boxes] == [
        (0, "forward", 0, 0, 1),
        (0, "forward", 1, 1, 2),
        (0, "backward", 0, 5, 7),  # after that of rank 1
        (0, "backward", 1, 7, 9),
        (1, "forward", 0, 1, 2),
        (1, "forward", 1, 2, 3),
        (1, "backward", 0, 3, 5),
        (1, "backward", 1, 5, 7),
    ]
    assert timeline.end == 9
    assert timeline.idle_of_ranks == [pytest.approx(1 / 3)] * 2


@pytest.mark.parametrize(("ranks", "micro_batches"), [(4, 4), (4, 8), (2, 4), (8, 32)])
def test_gpipe_with_equal_passes_idles_as_its_formula_says(ranks: int, micro_batches: int) -> None:
    timeline = of(gpipe(ranks, micro_batches))
    assert timeline.idle == pytest.approx((ranks - 1) / (micro_batches + ranks - 1))
    assert timeline.idle == pytest.approx(timeline.measured.formula)


def test_gpipe_with_four_ranks_and_four_micro_batches_idles_three_sevenths() -> None:
    assert f"{of(gpipe(4, 4)).idle:.1%}" == "42.9%"


def test_1f1b_idles_as_gpipe_does() -> None:
    orders: list[Order] = [
        [
            *(("forward", 0, 0), ("forward", 0, 1), ("backward", 0, 0)),
            *(("forward", 0, 2), ("backward", 0, 1), ("backward", 0, 2)),
        ],
        [(kind, 1, number) for number in range(3) for kind in ("forward", "backward")],
    ]
    timeline = of(pipeline(orders, "1f1b", 2, 3, EQUAL))
    assert timeline.idle == pytest.approx(timeline.measured.formula) == pytest.approx(1 / 4)


def test_interleaved_stages_idle_less() -> None:
    orders: list[Order] = [
        [(kind, stage, number) for kind, stage in stages for number in range(2)]
        for stages in (
            [("forward", 0), ("forward", 2), ("backward", 2), ("backward", 0)],
            [("forward", 1), ("forward", 3), ("backward", 3), ("backward", 1)],
        )
    ]
    timeline = of(pipeline(orders, "interleaved", 4, 2, EQUAL))
    assert timeline.idle == pytest.approx(timeline.measured.formula) == pytest.approx(1 / 5)
    assert timeline.measured.formula_text == "(k-1)/(vm+k-1)"


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_in_naive_model_parallelism_one_rank_works_at_a_time(micro_batches: int) -> None:
    orders: list[Order] = [
        [(kind, rank, number) for number in range(micro_batches) for kind in ("forward", "backward")]
        for rank in range(4)
    ]
    timeline = of(pipeline(orders, "naive", 4, micro_batches, EQUAL))
    assert timeline.measured.formula == 1 - 1 / 4
    if micro_batches == 1:
        assert timeline.idle == pytest.approx(0.75)


def test_without_flushes_the_time_between_filling_and_draining_counts() -> None:
    steady: Order = [
        (kind, 0, number + 2 * (kind == "forward")) for number in range(8) for kind in ("backward", "forward")
    ]
    orders: list[Order] = [
        [("forward", 0, 0), ("forward", 0, 1), *steady],
        [(kind, 1, number) for number in range(10) for kind in ("forward", "backward")],
    ]
    timeline = of(pipeline(orders, "pipedream", 2, 4, {"forward": 1.0, "backward": 1.0}, flushed=False))
    assert (timeline.measured.formula, timeline.measured.formula_text) == (0.0, "no flush")
    assert timeline.idle == pytest.approx(0.0, abs=0.06)


def test_without_flushes_passes_of_earlier_steps_may_be_missing() -> None:
    orders: list[Order] = [[("backward", 0, 3), ("forward", 0, 6)], [("backward", 1, 4), ("forward", 1, 5)]]
    timeline = of(pipeline(orders, "pipedream", 2, 4, EQUAL, flushed=False))
    assert (timeline.idle, timeline.end) == (0.0, 3.0)


def test_a_rank_without_gaps_is_not_idle_for_less_than_no_time() -> None:
    steady: Order = [
        (kind, 0, number + 2 * (kind == "forward")) for number in range(2) for kind in ("backward", "forward")
    ]
    orders: list[Order] = [
        [("forward", 0, 0), ("forward", 0, 1), *steady],
        [(kind, 1, number) for number in range(4) for kind in ("forward", "backward")],
    ]
    seconds = {"forward": 1.8, "backward": 0.9}  # whose sums are rounded up
    timeline = of(pipeline(orders, "pipedream", 2, 1, seconds, flushed=False))
    assert timeline.idle_of_ranks[1] == 0.0


def test_a_timeline_is_an_object_in_json() -> None:
    printed = json.loads(of(gpipe(2, 2)).as_json(7))
    first = printed.pop("passes")[0]
    assert printed == {
        "job_id": 7,
        "schedule": "gpipe",
        "ranks": 2,
        "stages": 2,
        "micro_batches": 2,
        "flushed": True,
        "steps": 20,
        "idle": pytest.approx(1 / 3),
        "idle_formula": pytest.approx(1 / 3),
    }
    assert first == {"rank": 0, "kind": "forward", "stage": 0, "micro_batch": 0, "start": 0.0, "end": 1.0}


def _with(**fields: object) -> Callable[[dict[str, Any]], object]:
    return lambda whole: {**whole, **fields}


def _with_pass(**fields: object) -> Callable[[dict[str, Any]], object]:
    def change(whole: dict[str, Any]) -> object:
        whole["passes"][0][0].update(fields)
        return whole

    return change


def _with_passes(change: Callable[[list[list[Any]]], object]) -> Callable[[dict[str, Any]], object]:
    def changed(whole: dict[str, Any]) -> object:
        change(whole["passes"])
        return whole

    return changed


HOSTILE: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a list": (lambda _: [], "it must be"),
    "a number": (lambda _: 7, "it must be"),
    "nothing": (lambda _: None, "it must be"),
    "no fields": (lambda _: {}, "schedule: a value is required"),
    "no passes": (lambda whole: {**whole, "passes": []}, "passes"),
    "a rank without passes": (_with_passes(lambda passes: passes[1].clear()), "passes.1"),
    "no list of passes": (_with(passes=7), "passes: 7 is not allowed: it must be a list"),
    "NaN": (_with_pass(seconds=float("nan")), "passes.0.0.seconds: nan is not allowed"),
    "infinity": (_with_pass(seconds=float("inf")), "passes.0.0.seconds: inf is not allowed"),
    "negative time": (_with_pass(seconds=-1), "passes.0.0.seconds: -1"),
    "endless time": (_with_pass(seconds=1e300), "passes.0.0.seconds: 1e+300"),
    "time as text": (_with_pass(seconds="1"), "passes.0.0.seconds"),
    "unknown kind": (_with_pass(kind="\x1b[2J"), r"passes.0.0.kind: '\x1b[2J' is not allowed"),
    "negative stage": (_with_pass(stage=-1), "passes.0.0.stage: -1"),
    "stage that is none": (_with_pass(stage=2), "stage 2, but stages is 2"),
    "huge stage": (_with_pass(stage=2**80), "passes.0.0.stage"),
    "huge micro-batch": (_with_pass(micro_batch=2**80), "passes.0.0.micro_batch"),
    "micro-batch that is none": (_with_pass(micro_batch=2), "must have a forward and a backward pass"),
    "a pass twice": (_with_pass(micro_batch=1), "one pass twice"),
    "a missing pass": (_with_passes(lambda passes: passes[0].pop()), "must have a forward and a backward"),
    "an impossible order": (_with_passes(lambda passes: passes[0].reverse()), "wait for each other"),
    "huge ranks": (_with(ranks=10**9), "ranks: 1000000000 is not allowed"),
    "no ranks": (_with(ranks=0), "ranks: 0 is not allowed"),
    "other ranks": (_with(ranks=1), "passes has 2 lists, but ranks is 1"),
    "ranks as text": (_with(ranks="2"), "ranks"),
    "huge stages": (_with(stages=10**12), "stages: 1000000000000 is not allowed"),
    "uneven stages": (_with(stages=3), "stages 3 is not a multiple of ranks 2"),
    "huge micro-batches": (_with(micro_batches=10**12), "micro_batches: 1000000000000 is not allowed"),
    "no micro-batches": (_with(micro_batches=0), "micro_batches: 0 is not allowed"),
    "flushed as text": (_with(flushed="yes"), "flushed"),
    "long schedule": (_with(schedule="x" * 10_000), "schedule"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_content_that_is_no_timeline_is_an_error_with_its_first_problem(name: str) -> None:
    change, problem = HOSTILE[name]
    with pytest.raises(ServerError) as error:
        of(change(gpipe(2, 2)))
    assert problem in str(error.value)
    assert str(error.value).startswith("timeline.json is not a timeline: ")
    assert len(str(error.value)) < 400
    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe", b"{", b"[" * 100_000, b'{"ranks": ' + b"9" * 100_000 + b"}", b'{"a": "\\ud800"}'],
    ids=["empty", "binary", "cut", "deep", "long number", "surrogate"],
)
def test_content_that_is_no_json_is_an_error(content: bytes) -> None:
    with pytest.raises(ServerError, match=r"^timeline\.json is not a timeline: "):
        read([content])


def test_passes_that_take_no_time_are_an_error() -> None:
    with pytest.raises(ServerError, match="all passes have 0 seconds"):
        of(gpipe(2, 2, forward=0, backward=0))


def test_too_many_passes_are_an_error() -> None:
    with pytest.raises(ServerError, match=f"at most {MOST_PASSES} can be drawn"):
        of(gpipe(4, MOST_PASSES // 8 + 1))


def test_of_a_large_file_only_the_beginning_is_read() -> None:
    taken = 0

    def pieces() -> Any:
        nonlocal taken
        while True:
            taken += 1
            yield b" " * (MOST_BYTES // 4)

    with pytest.raises(ServerError, match="more than 4194304 bytes"):
        read(pieces())
    assert taken == 5


def test_of_many_wrong_passes_only_the_first_is_reported() -> None:
    content = gpipe(2, 2)
    content["passes"] = [[1] * 9_000] * 128
    with pytest.raises(ServerError) as error:
        of(content)
    assert len(str(error.value)) < 400


def test_extreme_times_have_an_idle_share() -> None:
    content = gpipe(2, 2, forward=5e-324, backward=0)
    assert 0 <= of(content).idle <= 1
    content["passes"][0][0]["seconds"] = 1e6
    assert 0 <= of(content).idle <= 1
