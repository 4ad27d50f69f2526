"""Servers, standbys and workers that are lost between any two messages."""

import pytest
import torch
from language_model.parameter_server.roles import Roles
from language_model.parameter_server.synchrony import Rule, Synchrony, rule_of
from trainer_kit.errors import GroupError

from tests.support.trainers.parameter_network import Network
from tests.support.trainers.parameter_server import Play, global_batch, single_process

WORKERS, UPDATES = 3, 6
RULES = {
    name: rule_of(name, WORKERS, backup_workers=int(name is Synchrony.BACKUP_WORKERS), softsync=2)
    for name in Synchrony
}
BEARABLE = [name for name in Synchrony if name is not Synchrony.SYNCHRONOUS]


def network(servers: int, rule: Rule, seed: int, *, has_standby: bool = False) -> Network:
    size = servers * (1 + has_standby) + WORKERS
    return Network(Roles(size, servers, has_standby), rule, UPDATES, seed)


def replayed(net: Network, rule: Rule, first_worker: int) -> torch.Tensor:
    """The weights of a single server that takes the same gradients in the same order."""
    play = Play(rule, WORKERS)
    play.push(*(rank - first_worker + 1 for rank in net.order()))
    assert play.server.version == UPDATES
    return play.weights


@pytest.mark.parametrize("servers", [1, 2, 3])
@pytest.mark.parametrize("synchrony", Synchrony)
def test_servers_of_shards_do_what_one_server_does(servers: int, synchrony: Synchrony) -> None:
    for seed in range(2):
        for has_standby in (False, True):
            net = network(servers, RULES[synchrony], seed, has_standby=has_standby)
            weights = net.run()
            first = servers * (1 + has_standby)
            assert torch.equal(weights, replayed(net, RULES[synchrony], first))


@pytest.mark.parametrize("synchrony", Synchrony)
def test_a_lost_server_or_standby_changes_nothing_whenever_it_is_lost(synchrony: Synchrony) -> None:
    rule, servers = RULES[synchrony], 2
    for seed, lost in enumerate(range(2 * servers)):
        whole = network(servers, rule, seed, has_standby=True)
        whole.run()
        for moment in range(seed, whole.delivered, whole.delivered // 5):
            net = network(servers, rule, seed, has_standby=True)
            weights = net.run(kill={moment: lost})
            assert torch.equal(weights, replayed(net, rule, 2 * servers))


def test_synchronous_servers_that_are_lost_one_after_the_other_are_one_process() -> None:
    alone = single_process(global_batch(WORKERS, number) for number in range(UPDATES))
    for seed in range(10):
        net = network(2, RULES[Synchrony.SYNCHRONOUS], seed, has_standby=True)
        weights = net.run(kill={40 + 3 * seed: seed % 2, 60 + 2 * seed: 2 + (seed + 1) % 2})
        torch.testing.assert_close(weights, alone, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("synchrony", BEARABLE)
@pytest.mark.parametrize("has_standby", [False, True])
def test_others_go_on_without_a_lost_worker(synchrony: Synchrony, has_standby: bool) -> None:
    first = 2 * (1 + has_standby)
    for moment in range(0, 60, 8):
        net = network(2, RULES[synchrony], moment, has_standby=has_standby)
        weights = net.run(kill={moment: first + moment % WORKERS})
        assert torch.equal(weights, replayed(net, RULES[synchrony], first))


def test_synchronous_training_ends_with_an_error_that_names_a_lost_worker() -> None:
    with pytest.raises(
        GroupError, match=r"worker 3 is gone .* an update needs 3 workers, and the number left is 2"
    ):
        network(2, RULES[Synchrony.SYNCHRONOUS], 1).run(kill={30: 3})


def test_a_shard_without_server_and_standby_ends_the_training_with_an_error_that_names_both() -> None:
    net = network(2, RULES[Synchrony.ASYNCHRONOUS], 1, has_standby=True)
    with pytest.raises(GroupError, match="parameter server 1 with its standby, rank 3, is gone"):
        net.run(kill={30: 3, 40: 1})
    net = network(2, RULES[Synchrony.ASYNCHRONOUS], 1)
    with pytest.raises(GroupError, match="parameter server 1 is gone"):
        net.run(kill={30: 1})
