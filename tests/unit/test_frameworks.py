"""What each framework tells each rank, whole: as its documentation has it."""

import json
from typing import Any

import pytest

from job_tracker.domain.policies import Elastic
from job_tracker.frameworks import FRAMEWORKS, Address, GroupLayout


def layout(*roles: str, processes: int = 1, elastic: Elastic | None = None) -> GroupLayout:
    addresses = tuple(Address(f"h{rank}", 20000 + rank) for rank in range(len(roles)))
    return GroupLayout(addresses=addresses, roles=roles, processes_per_instance=processes, elastic=elastic)


THREE = layout("master", "worker", "worker")


def tf_config(of: GroupLayout, rank: int) -> Any:
    told = FRAMEWORKS["tensorflow"].environment(of, rank)
    assert set(told) == {"TF_CONFIG"}
    return json.loads(told["TF_CONFIG"])


def test_pytorch_tells_of_processes_and_torchrun_of_nodes() -> None:
    assert FRAMEWORKS["pytorch"].environment(THREE, 2) == {
        "WORLD_SIZE": "3",
        "RANK": "2",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "h0",
        "MASTER_PORT": "20000",
        "PET_NNODES": "3",
        "PET_NODE_RANK": "2",
        "PET_NPROC_PER_NODE": "1",
        "PET_MASTER_ADDR": "h0",
        "PET_MASTER_PORT": "20000",
    }
    assert FRAMEWORKS["pytorch"].command(THREE, ("python", "t.py")) == ("python", "t.py")


def test_several_processes_are_torchrun_s_to_count() -> None:
    pairs = layout("master", "worker", processes=2)
    told = FRAMEWORKS["pytorch"].environment(pairs, 1)
    assert "RANK" not in told
    assert "WORLD_SIZE" not in told
    assert (told["PET_NNODES"], told["PET_NODE_RANK"], told["PET_NPROC_PER_NODE"]) == ("2", "1", "2")
    assert FRAMEWORKS["pytorch"].command(pairs, ("python", "t.py")) == (
        *("torchrun", "--no-python"),
        *("python", "t.py"),
    )


def test_an_elastic_group_meets_at_the_master_s_rendezvous() -> None:
    elastic = layout("master", "worker", "worker", elastic=Elastic(min_instances=2, max_restarts=7))
    first, last = (FRAMEWORKS["pytorch"].environment(elastic, rank) for rank in (0, 2))
    assert "RANK" not in last
    assert last["PET_NNODES"] == "2:3"
    assert last["PET_MAX_RESTARTS"] == "7"
    assert (last["PET_RDZV_BACKEND"], last["PET_RDZV_ENDPOINT"]) == ("c10d", "h0:20000")
    assert first["PET_RDZV_CONF"].startswith("is_host=true,")
    assert last["PET_RDZV_CONF"].startswith("is_host=false,")
    assert last["PET_LOCAL_ADDR"] == "h2"
    assert last["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert FRAMEWORKS["pytorch"].command(elastic, ("python", "t.py"))[0] == "torchrun"


def test_tensorflow_s_workers_are_told_of_each_other() -> None:
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
    told = tf_config(layout("master", "worker", "worker", "ps", "ps"), rank)
    assert told["cluster"] == {
        "chief": ["h0:20000"],
        "worker": ["h1:20001", "h2:20002"],
        "ps": ["h3:20003", "h4:20004"],
    }
    assert told["task"] == {"type": kind, "index": index}


def test_an_evaluator_is_told_of_the_cluster_and_not_in_it() -> None:
    group = layout("master", "worker", "evaluator")
    assert tf_config(group, 2) == {
        "cluster": {"worker": ["h0:20000", "h1:20001"]},
        "task": {"type": "evaluator", "index": 0},
    }
    assert tf_config(group, 1)["task"] == {"type": "worker", "index": 1}


def test_jax_is_told_what_initialize_is_to_be_given() -> None:
    assert FRAMEWORKS["jax"].environment(THREE, 1) == {
        "JAX_COORDINATOR_ADDRESS": "h0:20000",
        "JAX_NUM_PROCESSES": "3",
        "JAX_PROCESS_ID": "1",
    }


def test_each_instance_is_a_host_of_its_own_to_horovod() -> None:
    told = FRAMEWORKS["horovod"].environment(THREE, 1)
    assert {name: told[f"HOROVOD_{name}"] for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")} == {
        "RANK": "1",
        "SIZE": "3",
        "LOCAL_RANK": "0",
        "LOCAL_SIZE": "1",
    }
    assert told["HOROVOD_GLOO_RENDEZVOUS_ADDR"] == "h0"
    hosts = {FRAMEWORKS["horovod"].environment(THREE, rank)["HOROVOD_HOSTNAME"] for rank in range(3)}
    assert len(hosts) == 3


def test_mpi_starts_slots_in_every_instance_but_a_launcher_of_its_own() -> None:
    mpi = FRAMEWORKS["mpi"]
    told = mpi.environment(layout("master", "worker", processes=4), 1)
    assert told == {
        "MASTER_ADDR": "h0",
        "MASTER_PORT": "20000",
        "MPI_INSTANCES": "2",
        "MPI_INSTANCE": "1",
        "MPI_SLOTS": "4",
        "MPI_LAUNCHER_SLOTS": "4",
    }
    assert mpi.environment(layout("launcher", "worker", "worker"), 0)["MPI_LAUNCHER_SLOTS"] == "0"
    assert mpi.command(THREE, ("python", "t.py")) == ("python", "-m", "trainer_kit.mpi", "python", "t.py")
