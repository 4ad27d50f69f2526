"""Real groups: a server, its workers, and the messages between them."""

from typing import Any

import pytest
import torch
from language_model.parameter_server import flat

from tests.support.trainers.parameter_server import (
    SERVED,
    UPDATES,
    batch_of,
    build,
    global_batch,
    loss_on,
    single_process,
)

Trained = dict[int, list[dict[str, Any]]]


def test_asynchronous_with_one_worker_is_plain_sgd_bit_for_bit(trained: Trained) -> None:
    server, worker = (rank["asynchronous"] for rank in trained[2])
    alone = single_process(batch_of(1, number) for number in range(UPDATES))
    assert server["weights"] == alone.tolist()
    assert worker == {
        "count": UPDATES,
        "versions": list(range(UPDATES)),
        "weights": server["weights"],
    }


@pytest.mark.parametrize("size", [2, 4])
def test_synchronous_is_one_process_with_the_whole_batch(trained: Trained, size: int) -> None:
    server = trained[size][0]["synchronous"]
    alone = single_process(global_batch(size - 1, number) for number in range(UPDATES))
    torch.testing.assert_close(
        torch.tensor(server["weights"], dtype=torch.float64), alone, rtol=1e-12, atol=1e-13
    )
    assert server["staleness"] == {"0": UPDATES * (size - 1)}


@pytest.mark.parametrize("size", [2, 4])
def test_no_backup_worker_is_synchronous(trained: Trained, size: int) -> None:
    assert trained[size][0]["backup_workers"] == trained[size][0]["synchronous"]


def test_no_worker_waits_for_one_whose_gradient_is_late(trained: Trained) -> None:
    server, first, _, late = (rank["late"] for rank in trained[4])
    assert len(server["losses"]) == UPDATES
    assert server["dropped"] >= 1
    assert server["staleness"] == {"0": 2 * UPDATES}
    assert first["versions"][:3] == [0, 1, 2]
    assert late["versions"][0] == 0
    assert all(version >= 2 for version in late["versions"][1:])


def test_asynchronous_workers_do_not_wait_for_each_other(trained: Trained) -> None:
    server, *workers = (rank["asynchronous"] for rank in trained[4])
    computed = sum(worker["count"] for worker in workers)
    assert sum(server["staleness"].values()) == UPDATES
    assert UPDATES <= computed <= UPDATES + len(workers) - 1  # those on their way at the end are not used
    model, batch = build(), torch.cat([batch_of(9, number) for number in range(100)])
    before = loss_on(model, batch).item()
    flat.set_weights(model, torch.tensor(server["weights"], dtype=torch.float64))
    assert loss_on(model, batch).item() < before


def test_the_language_model_learns_synchronously_what_one_process_learns(trained: Trained) -> None:
    for name, of_one in (("synchronous", "plain"), ("speculative", "plain"), ("growing", "growing")):
        [alone] = (rank[of_one] for rank in trained[1])
        served = trained[3][0][name]
        assert served["losses"] == pytest.approx(alone["losses"], abs=1e-5)
        assert served["weights"] == pytest.approx(alone["weights"], abs=1e-4)


@pytest.mark.parametrize("synchrony", SERVED)
def test_the_language_model_learns_with_any_synchrony(trained: Trained, synchrony: str) -> None:
    server, *workers = (rank[synchrony] for rank in trained[3])
    [alone] = (rank["plain"] for rank in trained[1])
    first = alone["losses"][0]
    assert len(server["losses"]) == len(alone["losses"])
    # The last reported loss may be a loss with old weights.
    assert first - server["loss"] > 0.5 * (first - alone["loss"])
    assert server["metrics"]["staleness_mean"] <= server["metrics"]["staleness_max"]
    assert all(worker["weights"] == server["weights"] for worker in workers)


def test_others_start_the_share_of_a_straggler_again_and_it_counts_once(trained: Trained) -> None:
    server, *workers = (rank["speculative"] for rank in trained[4])
    alone = single_process(global_batch(3, number) for number in range(UPDATES))
    torch.testing.assert_close(
        torch.tensor(server["weights"], dtype=torch.float64), alone, rtol=1e-12, atol=1e-13
    )
    assert server["staleness"] == {"0": 3 * UPDATES}
    assert workers[0]["versions"][:3] != [0, 1, 2], "it has computed two shares of a step"
    assert server["dropped"] > 0


def test_two_servers_are_one_process_with_the_whole_batch(trained: Trained) -> None:
    server, _, *workers = (rank["few"] for rank in trained[5])
    alone = single_process(global_batch(3, number) for number in range(UPDATES))
    torch.testing.assert_close(
        torch.tensor(server["weights"], dtype=torch.float64), alone, rtol=1e-12, atol=1e-13
    )
    assert all(worker["weights"] == server["weights"] for worker in workers)


@pytest.mark.parametrize("name", ["three workers", "of one server", "sgd"])
def test_the_language_model_learns_from_two_servers_or_with_a_standby_what_one_process_learns(
    trained: Trained, name: str
) -> None:
    [alone] = (rank["sgd" if name == "sgd" else "three workers"] for rank in trained[1])
    server, *others = (rank[name] for rank in trained[5])
    assert server["losses"] == pytest.approx(alone["losses"], abs=1e-5)
    assert server["weights"] == pytest.approx(alone["weights"], abs=1e-4)
    assert all(other["metrics"] is None for other in others)


@pytest.mark.parametrize(("name", "servers", "sent"), [("three workers", 2, 1), ("of one server", 1, 2)])
def test_a_server_sends_and_receives_its_share_of_the_weights_for_each_gradient_and_a_copy_to_its_standby(
    trained: Trained, name: str, servers: int, sent: int
) -> None:
    server, *_ = (rank[name] for rank in trained[5])
    share = 3 * server["bytes"] / servers
    assert server["metrics"]["server_received_bytes"] == pytest.approx(share, rel=0.02)
    assert server["metrics"]["server_sent_bytes"] == pytest.approx(sent * share, rel=0.02)
