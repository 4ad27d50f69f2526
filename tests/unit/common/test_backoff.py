from job_tracker.common.backoff import Backoff


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(1.0, 5.0)
    for longest in (1.0, 2.0, 4.0, 5.0, 5.0):
        assert longest / 2 <= backoff.next() <= longest


def test_a_reset_starts_with_the_first_pause_again() -> None:
    backoff = Backoff(1.0, 100.0)
    for _ in range(5):
        backoff.next()
    backoff.reset()
    assert backoff.next() <= 1.0


def test_clients_that_fail_together_do_not_retry_together() -> None:
    assert len({Backoff(1.0, 1.0).next() for _ in range(10)}) > 1
