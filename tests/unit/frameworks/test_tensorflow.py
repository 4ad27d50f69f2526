"""The complete environment for TensorFlow, compared with its documentation."""

import json
from typing import Any

import pytest

from job_tracker.frameworks import FRAMEWORKS, GroupLayout
from tests.support.layouts import THREE, layout


def tf_config(of: GroupLayout, rank: int) -> Any:
    variables = FRAMEWORKS["tensorflow"].environment(of, rank)
    assert set(variables) == {"TF_CONFIG"}
    return json.loads(variables["TF_CONFIG"])


def test_workers_get_the_addresses_of_all_workers() -> None:
    assert tf_config(THREE, 2) == {
        "cluster": {"worker": ["h0:20000", "h1:20001", "h2:20002"]},
        "task": {"type": "worker", "index": 2},
    }
    assert tf_config(layout("master"), 0)["cluster"] == {"worker": ["h0:20000"]}


@pytest.mark.parametrize(
    ("rank", "kind", "index"),
    [(0, "chief", 0), (1, "worker", 0), (2, "worker", 1), (3, "ps", 0), (4, "ps", 1)],
)
def test_parameter_servers_make_rank_0_the_chief(rank: int, kind: str, index: int) -> None:
    variables = tf_config(layout("master", "worker", "worker", "ps", "ps"), rank)
    assert variables["cluster"] == {
        "chief": ["h0:20000"],
        "worker": ["h1:20001", "h2:20002"],
        "ps": ["h3:20003", "h4:20004"],
    }
    assert variables["task"] == {"type": kind, "index": index}


def test_an_evaluator_gets_the_cluster_without_being_part_of_it() -> None:
    group = layout("master", "worker", "evaluator")
    assert tf_config(group, 2) == {
        "cluster": {"worker": ["h0:20000", "h1:20001"]},
        "task": {"type": "evaluator", "index": 0},
    }
    assert tf_config(group, 1)["task"] == {"type": "worker", "index": 1}
