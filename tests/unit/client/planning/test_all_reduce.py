"""The algorithm of an all-reduce is chosen by the links between the instances."""

from dataclasses import replace

import pytest

from training_service.client.planning import all_reduce, costs, reasons
from training_service.client.planning.cluster import Cluster
from training_service.client.planning.costs import Layout, Training
from training_service.client.planning.model import Model
from training_service.client.planning.search import Choice, Decision

TRAINING = Training(Model(layers=4, width=256, heads=4, sequence=64, vocabulary=256), batch=32)
SENT = TRAINING.model.parameters * TRAINING.states[1]
"""About 13 MB: one bucket."""


def chosen(cluster: Cluster) -> tuple[Choice, all_reduce.Comparison]:
    layout = Layout(data=cluster.devices)
    choice = Choice(layout, costs.memory(TRAINING, layout), costs.time(TRAINING, cluster, layout))
    comparison = all_reduce.compared(TRAINING, cluster, choice)
    assert comparison is not None
    return choice, comparison


def test_equal_links_give_the_times_of_the_published_formulas() -> None:
    cluster = Cluster(
        memory=80e9, speed=1e12, machines=4, outer_bandwidth=1e9, outer_latency=1e-3, link_efficiency=1.0
    )
    _, comparison = chosen(cluster)
    most = 2 * 3 / 4 * SENT / 1e9
    assert comparison.alone == pytest.approx(
        {
            "library": 6e-3 + most,
            "ring": 6e-3 + most,
            "halving_doubling": 4e-3 + most,
            "hierarchical": 6e-3 + most,  # each machine is a node
            "torus": 4e-3 + most,
        }
    )


def test_the_library_is_left_alone_if_the_backward_pass_hides_it() -> None:
    cluster = Cluster(memory=80e9, speed=1e12, machines=4, outer_bandwidth=10e9, outer_latency=1e-6)
    choice, comparison = chosen(cluster)
    assert comparison.best == "library"
    assert all_reduce.parameters(TRAINING, cluster, choice) == {}
    assert any("The library's ring waits the least" in each for each in why(cluster, choice))


def test_long_latencies_choose_fewer_messages() -> None:
    cluster = Cluster(memory=80e9, speed=1e15, machines=8, outer_bandwidth=10e9, outer_latency=0.05)
    choice, comparison = chosen(cluster)
    assert comparison.best == "halving_doubling"
    assert all_reduce.parameters(TRAINING, cluster, choice) == {"ALL_REDUCE": "halving_doubling"}
    assert any("ALL_REDUCE=halving_doubling waits" in each for each in why(cluster, choice))


def test_long_latencies_between_machines_choose_one_rank_of_each() -> None:
    cluster = Cluster(
        *(80e9, 1e15),
        machines=2,
        per_machine=8,
        inner_bandwidth=300e9,
        inner_latency=1e-6,
        outer_bandwidth=0.3e9,
        outer_latency=0.02,
    )
    choice, _ = chosen(cluster)
    assert all_reduce.parameters(TRAINING, cluster, choice) == {
        "ALL_REDUCE": "hierarchical",
        "NODE_SIZE": "8",
    }


@pytest.mark.parametrize("size", [2, 3, 5, 6, 7, 12])
def test_any_number_of_ranks_has_a_time(size: int) -> None:
    found = all_reduce._algorithms(Cluster(memory=1e9, speed=1e9, machines=size), size, SENT, 1)
    assert all(latencies > 0 and seconds > 0 for latencies, seconds in found.values())


@pytest.mark.parametrize("layout", [Layout(), Layout(data=2, strategy="zero1"), Layout(data=2, tensor=2)])
def test_other_layouts_have_no_choice(layout: Layout) -> None:
    cluster = Cluster(memory=80e9, speed=1e12, machines=1, per_machine=4)
    choice, _ = chosen(cluster)
    other = replace(choice, layout=layout)
    assert all_reduce.compared(TRAINING, cluster, other) is None


def why(cluster: Cluster, choice: Choice) -> list[str]:
    decision = Decision(best=choice, at_best=(choice,), by_devices={choice.layout.devices: choice})
    return list(reasons.reasons(TRAINING, cluster, decision, 0.5))
