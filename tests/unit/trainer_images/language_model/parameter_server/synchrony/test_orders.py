"""A server applies gradients in orders that a network would not repeat."""

import random

import pytest
import torch
from language_model.parameter_server.synchrony import Rule, Synchrony, rule_of

from tests.support.trainers.parameter_server import (
    Play,
    batch_of,
    global_batch,
    single_process,
)

WORKERS = 4
ASYNCHRONOUS = rule_of(Synchrony.ASYNCHRONOUS, WORKERS)
SYNCHRONOUS = rule_of(Synchrony.SYNCHRONOUS, WORKERS)


def rounds(count: int, seed: int = 1) -> list[int]:
    """An order in which no worker pushes a second time before every other worker has pushed once."""
    chance = random.Random(seed)
    return [worker for _ in range(count) for worker in chance.sample(range(1, WORKERS + 1), WORKERS)]


def test_synchronous_is_one_process_with_the_whole_batch() -> None:
    play = Play(SYNCHRONOUS, WORKERS)
    play.push(*rounds(20))
    alone = single_process(global_batch(WORKERS, number) for number in range(20))
    torch.testing.assert_close(play.weights, alone, rtol=1e-12, atol=1e-13)
    assert dict(play.server.staleness) == {0: 20 * WORKERS}


def test_synchronous_does_not_depend_on_who_comes_first() -> None:
    one, other = Play(SYNCHRONOUS, WORKERS), Play(SYNCHRONOUS, WORKERS)
    one.push(*rounds(10, seed=1))
    other.push(*rounds(10, seed=2))
    assert torch.equal(one.weights, other.weights)


def test_no_backup_worker_is_synchronous() -> None:
    plain = Play(SYNCHRONOUS, WORKERS)
    backed = Play(rule_of(Synchrony.BACKUP_WORKERS, WORKERS, backup_workers=0), WORKERS)
    for play in (plain, backed):
        play.push(*rounds(10))
    assert torch.equal(plain.weights, backed.weights)


def test_a_late_gradient_is_dropped_and_its_worker_joins_the_next_step() -> None:
    play = Play(rule_of(Synchrony.BACKUP_WORKERS, 3, backup_workers=1), 3)
    play.push(1, 2)
    assert play.server.version == 1
    before = play.weights
    play.push(3)  # of the first step
    assert torch.equal(play.weights, before)
    assert (play.server.version, play.server.dropped) == (1, 1)
    play.push(3, 1)
    assert (play.server.version, play.server.dropped) == (2, 1)
    assert set(play.server.staleness) == {0}


def test_asynchronous_with_one_worker_is_plain_sgd_bit_for_bit() -> None:
    play = Play(ASYNCHRONOUS, workers=1)
    play.push(*[1] * 20)
    assert torch.equal(play.weights, single_process(batch_of(1, number) for number in range(20)))


def test_staleness_counts_the_updates_since_a_worker_read() -> None:
    play = Play(ASYNCHRONOUS, WORKERS)
    play.push(1, 1, 2, 3, 3, 4)
    assert [update.staleness for update in play.updates] == [(0,), (0,), (2,), (3,), (0,), (5,)]


def test_workers_who_take_turns_asynchronously_are_stale_by_all_others() -> None:
    play = Play(ASYNCHRONOUS, WORKERS)
    play.push(*[1, 2, 3, 4] * 5)
    assert [update.staleness for update in play.updates[WORKERS:]] == [(WORKERS - 1,)] * 4 * WORKERS


@pytest.mark.parametrize("seed", range(5))
def test_delay_compensation_of_nothing_is_asynchronous(seed: int) -> None:
    plain = Play(ASYNCHRONOUS, WORKERS)
    compensated = Play(rule_of(Synchrony.DELAY_COMPENSATED, WORKERS, compensation=0), WORKERS)
    for play in (plain, compensated):
        play.push(*rounds(5, seed))
    assert torch.equal(plain.weights, compensated.weights)


def test_delay_compensation_of_fresh_gradients_is_plain_sgd_bit_for_bit() -> None:
    play = Play(Rule(1, compensation=0.7), workers=1)
    play.push(*[1] * 20)
    assert torch.equal(play.weights, single_process(batch_of(1, number) for number in range(20)))


def test_delay_compensation_adds_the_drift_of_the_weights_times_the_squared_gradient() -> None:
    plain, compensated = Play(ASYNCHRONOUS, 2), Play(Rule(1, compensation=0.7), 2)
    read = plain.weights
    for play in (plain, compensated):
        play.push(1)
    before = plain.weights
    gradient, _ = plain.gradient(2)
    compensated.push(2)
    expected = gradient + 0.7 * gradient**2 * (before - read)
    torch.testing.assert_close(compensated.gradient_applied, expected, rtol=0, atol=0)
    assert not torch.equal(expected, gradient)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_softsync_of_workers_who_take_turns_is_stale_by_n_at_most(n: int) -> None:
    play = Play(rule_of(Synchrony.SOFTSYNC, WORKERS, softsync=n), WORKERS)
    play.push(*[1, 2, 3, 4] * 20)
    assert max(play.server.staleness) <= n


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("seed", range(5))
def test_softsync_is_stale_by_2n_at_most_where_none_is_twice_as_fast(n: int, seed: int) -> None:
    play = Play(rule_of(Synchrony.SOFTSYNC, WORKERS, softsync=n), WORKERS)
    play.push(*rounds(50, seed))
    assert max(play.server.staleness) <= 2 * n
    assert play.server.version == 50 * n


def test_softsync_divides_a_gradient_by_its_staleness() -> None:
    play = Play(Rule(1, weakens_stale=True), 2)
    play.push(1, 1, 1)
    gradient, _ = play.gradient(2)
    play.push(2)
    assert torch.equal(play.gradient_applied, gradient / 3)


def test_softsync_with_n_1_is_not_synchronous_since_no_worker_waits() -> None:
    play = Play(rule_of(Synchrony.SOFTSYNC, 2, softsync=1), 2)
    play.push(1, 1)  # twice from the same weights, and enough for an update
    assert play.server.version == 1
    play.push(2)
    play.push(1)
    assert [update.staleness for update in play.updates] == [(0, 0), (0, 1)]
