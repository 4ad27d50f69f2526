"""The complete environment for PyTorch and torchrun, compared with its documentation."""

from job_tracker.domain.policies import Elastic
from job_tracker.frameworks import FRAMEWORKS
from tests.support.layouts import THREE, layout


def test_variables_of_pytorch_count_processes_and_those_of_torchrun_nodes() -> None:
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


def test_torchrun_counts_several_processes() -> None:
    pairs = layout("master", "worker", processes=2)
    variables = FRAMEWORKS["pytorch"].environment(pairs, 1)
    assert "RANK" not in variables
    assert "WORLD_SIZE" not in variables
    assert (variables["PET_NNODES"], variables["PET_NODE_RANK"], variables["PET_NPROC_PER_NODE"]) == (
        "2",
        "1",
        "2",
    )
    assert FRAMEWORKS["pytorch"].command(pairs, ("python", "t.py")) == (
        *("torchrun", "--no-python"),
        *("python", "t.py"),
    )


def test_an_elastic_group_meets_at_the_rendezvous_of_the_master() -> None:
    elastic = layout("master", "worker", "worker", elastic=Elastic(min_instances=2, max_restarts=7))
    first, last = (FRAMEWORKS["pytorch"].environment(elastic, rank) for rank in (0, 2))
    assert "RANK" not in last
    assert last["PET_NNODES"] == "2:3"
    assert last["PET_MAX_RESTARTS"] == "7"
    assert (last["PET_RDZV_BACKEND"], last["PET_RDZV_ENDPOINT"]) == ("c10d", "h0:20000")
    assert (first["PET_RDZV_CONF"], last["PET_RDZV_CONF"]) == ("is_host=true", "is_host=false")
    assert last["PET_LOCAL_ADDR"] == "h2"
    assert last["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert last["TORCH_ELASTIC_WORKER_IDENTICAL"] == "1"
    assert FRAMEWORKS["pytorch"].command(elastic, ("python", "t.py"))[0] == "torchrun"
