"""Shares of a batch that idle workers start again: each counts once, in any order."""

import random

import pytest
import torch
from language_model.parameter_server.synchrony import Rule, Synchrony, rule_of

from tests.support.trainers.parameter_server import Play, global_batch, single_process

WORKERS, UPDATES = 4, 6


def rule(after: int = 50, workers: int = WORKERS) -> Rule:
    return rule_of(Synchrony.SPECULATIVE, workers, speculate_after=after)


def synchronous() -> torch.Tensor:
    play = Play(rule_of(Synchrony.SYNCHRONOUS, WORKERS), WORKERS)
    for _ in range(UPDATES):
        play.push(*range(1, WORKERS + 1))
    return play.weights


@pytest.mark.parametrize("after", [1, 50, 75, 99])
def test_in_any_order_of_arrival_it_is_synchronous_bit_for_bit(after: int) -> None:
    expected = synchronous()
    alone = single_process(global_batch(WORKERS, number) for number in range(UPDATES))
    torch.testing.assert_close(expected, alone, rtol=1e-12, atol=1e-13)
    repeated = 0
    for seed in range(15):
        chance, play = random.Random(seed), Play(rule(after), WORKERS)
        while play.server.version < UPDATES:
            play.push(chance.choice(play.busy))
        assert torch.equal(play.weights, expected), seed
        repeated += play.server.dropped
    assert repeated > 0 or after == 99


def test_idle_workers_start_a_share_again_once_enough_are_done() -> None:
    play = Play(rule(50), WORKERS)
    play.push(1)
    assert play.busy == [2, 3, 4], "one of four is not enough"
    play.push(2)
    assert play.busy == [1, 2, 3, 4]
    assert [play.server.share_of(worker) for worker in play.busy] == [2, 3, 2, 3]


def test_a_worker_that_never_answers_delays_nothing() -> None:
    play = Play(rule(50), WORKERS)
    while play.server.version < UPDATES:
        play.push(next(worker for worker in play.busy if worker != 3))
    assert torch.equal(play.weights, synchronous())


def test_what_a_slow_worker_sends_after_the_update_is_dropped_and_it_goes_on() -> None:
    play = Play(rule(50), WORKERS)
    play.push(1, 2, 4, 1)  # worker 1 has repeated share 2, which worker 3 has not sent yet
    assert (play.server.version, play.server.dropped) == (1, 0)
    play.push(3)
    assert (play.server.version, play.server.dropped) == (1, 1)
    assert 3 in play.busy


@pytest.mark.parametrize(("workers", "after", "number"), [(4, 50, 2), (4, 51, 3), (3, 1, 1), (1, 99, 1)])
def test_the_percentage_is_rounded_up(workers: int, after: int, number: int) -> None:
    assert rule(after, workers).speculates_after == number
