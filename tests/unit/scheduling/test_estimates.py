"""Expected starts of jobs."""

import time

from job_tracker.scheduling.estimates import Basis, estimates
from job_tracker.scheduling.model import Allocation, Expected, Flavor, Gang, Part, Promise, Running, Snapshot
from job_tracker.scheduling.waiting import WaitingGangs
from job_tracker.scheduling.waits import WaitRule

NOW = 1_000.0
RULE = WaitRule(median=1.0, high=2.0)


def gang(job_id: int, seconds: float | None, *, learned: bool = False) -> Gang:
    expected = None if seconds is None else Expected(median=seconds, high=seconds, is_learned=learned)
    return Gang(job_id=job_id, parts=(Part(8, {}),), expected=expected)


def snapshot(*waiting: Gang, running: Gang | None = None) -> Snapshot:
    runs = {running.job_id: Running(running, Allocation(), NOW)} if running else {}
    flavors = (Flavor(name="default", capacity={"instances": 8}),)
    return Snapshot(flavors=flavors, queues={}, waiting=WaitingGangs(waiting), running=runs)


def test_estimates_follow_the_order_and_the_lengths() -> None:
    found = estimates(snapshot(gang(2, 500), gang(3, 100), running=gang(1, 1000)), NOW, RULE, {})
    assert [(found[n].median, found[n].high) for n in (2, 3)] == [
        (NOW + 1000, NOW + 2000),
        (NOW + 1500, NOW + 3000),
    ]


def test_no_job_is_expected_later_than_promised() -> None:
    seen = snapshot(gang(2, 500), running=gang(1, 1000))
    found = estimates(seen, NOW, RULE, {2: Promise(NOW + 1200, "default")})[2]
    assert (found.median, found.high) == (NOW + 1000, NOW + 1200)
    past = estimates(seen, NOW, RULE, {2: Promise(NOW - 5, "default")})[2]
    assert (past.median, past.high) == (NOW, NOW)


def test_an_estimate_says_what_it_rests_on() -> None:
    seen = snapshot(gang(2, 5), gang(3, 5, learned=True), gang(4, None), gang(5, 5), running=gang(1, 5))
    found = estimates(seen, NOW, RULE, {})
    assert [found[n].basis for n in (2, 3, 4, 5)] == [
        Basis.GIVEN,
        Basis.GIVEN,
        Basis.LEARNED,
        Basis.ASSUMED,
    ]


def test_only_the_wanted_jobs_get_an_estimate() -> None:
    assert list(estimates(snapshot(gang(2, 5), gang(3, 5)), NOW, RULE, {}, [3, 99])) == [3]


def test_ten_thousand_estimates_take_less_than_a_second_of_the_processor() -> None:
    seen = snapshot(*(gang(job_id, 100.0) for job_id in range(10_000)))
    begin = time.process_time()
    assert len(estimates(seen, NOW, RULE, {})) == 10_000
    assert time.process_time() - begin < 1
