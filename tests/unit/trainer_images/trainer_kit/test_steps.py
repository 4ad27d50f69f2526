"""The signs of a training process."""

import threading
from collections.abc import Mapping

import pytest
from trainer_kit import steps
from trainer_kit.progress import Reporter
from trainer_kit.report_sinks import NullSink, Progress
from trainer_kit.steps import Standing, Steps


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_times_are_those_of_the_last_steps_without_waiting_and_other_phases(clock: Clock) -> None:
    signs = Steps(clock)
    assert signs.standing().step is None
    signs.step(0)
    for step in range(1, 10):
        clock.now += 2 if step < 9 else 10
        with signs.waiting():
            assert signs.standing().waiting
            clock.now += 1
        with signs.phase("evaluation"):
            assert signs.standing().phase == "evaluation"
            with signs.phase("saving"), signs.waiting():
                clock.now += 500
        assert signs.standing().step_seconds == (0 if step < 9 else 3)  # too few steps are not usual
        signs.step(step)
    now = signs.standing()
    assert (now.step, now.longest_step, now.step_seconds, now.waiting_seconds) == (9, 11, 3, 1)
    assert (now.phase, now.waiting) == ("training", False)


def test_a_step_that_was_noted_before_is_not_another_one(clock: Clock) -> None:
    signs = Steps(clock)
    signs.step(1)
    clock.now += 1
    signs.step(1)
    clock.now += 1
    signs.step(2)
    assert signs.standing().longest_step == 2


def test_only_recent_steps_count(clock: Clock) -> None:
    signs = Steps(clock)
    for step in range(100):
        signs.step(step)
        clock.now += 1000 if step == 50 else 1
    assert signs.standing().longest_step == 1


def test_a_process_may_train_again_after_the_end(clock: Clock) -> None:
    signs = Steps(clock)
    for step in range(10):
        clock.now += 7
        signs.step(step)
    signs.end()
    clock.now += 600
    signs.step(9)
    signs.seen_at(1)
    assert signs.standing() == Standing(9, 0, 0, 0, waiting=False, phase="training", moved_ago=0, still_for=0)
    clock.now += 2
    signs.step(10)
    assert signs.standing().longest_step == 2


def test_a_phase_that_does_not_exist_is_refused_and_a_failed_one_is_over(clock: Clock) -> None:
    signs = Steps(clock)
    with pytest.raises(ValueError, match="'lunch' is not allowed; allowed: training, evaluation"):
        signs.phase("lunch").__enter__()
    with pytest.raises(ZeroDivisionError), signs.phase("saving"):
        raise ZeroDivisionError
    assert signs.standing().phase == "training"
    signs.end()
    assert signs.standing().phase == "done"


def test_a_process_stands_still_since_its_last_step_or_since_it_was_last_seen_elsewhere(clock: Clock) -> None:
    signs = Steps(clock)
    signs.seen_at(1)
    seen = []
    for place, has_stepped in ((1, False), (2, True), (2, False), (3, False), (3, True), (3, False)):
        clock.now += 0.5
        if has_stepped:
            signs.step(place)
        clock.now += 0.5
        signs.seen_at(place)
        seen.append(signs.standing().still_for)
    assert seen == [1, 0.5, 1.5, 1, 2, 3]
    clock.now += 40  # in native code that let no other thread run
    signs.seen_at(4)
    assert signs.standing().still_for == 2


def test_another_thread_can_read_the_signs_at_any_time() -> None:
    signs, ends = Steps(), threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        try:
            while not ends.is_set():
                signs.standing()
        except BaseException as error:
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for step in range(20_000):
        signs.step(step)
    ends.set()
    reader.join()
    assert failures == []


def test_reported_steps_are_signs_of_every_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "OF_PROCESS", Steps())
    Reporter(NullSink()).report(step=9)
    Reporter(NullSink()).report(loss=1.0)
    assert steps.OF_PROCESS.standing().step == 9


def test_the_master_reports_how_long_its_steps_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    now, sent = [0.0], list[dict[str, float]]()

    class Sink(NullSink):
        def progress(self, known: Progress, fresh: Mapping[str, float]) -> None:
            sent.append(dict(fresh))

    signs = Steps(clock=lambda: now[0])
    monkeypatch.setattr(steps, "OF_PROCESS", signs)
    reporter = Reporter(Sink())
    for step in (1, 2, 3):
        now[0] += 1.0
        if step == 2:
            with signs.waiting():
                now[0] += 0.5
        reporter.report(step=step)
        reporter.report(step=step, loss=1.0)
    waits = {"step_seconds": 1.5, "waiting_seconds": 0.5}
    assert sent == [{}, {"loss": 1.0}, waits, {"loss": 1.0}, {}, {"loss": 1.0}]
