"""The complete environment for Horovod, compared with its documentation."""

from job_tracker.frameworks import FRAMEWORKS
from tests.support.layouts import THREE


def test_each_instance_is_a_horovod_host() -> None:
    variables = FRAMEWORKS["horovod"].environment(THREE, 1)
    assert {name: variables[f"HOROVOD_{name}"] for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")} == {
        "RANK": "1",
        "SIZE": "3",
        "LOCAL_RANK": "0",
        "LOCAL_SIZE": "1",
    }
    assert variables["HOROVOD_GLOO_RENDEZVOUS_ADDR"] == "h0"
    hosts = {FRAMEWORKS["horovod"].environment(THREE, rank)["HOROVOD_HOSTNAME"] for rank in range(3)}
    assert len(hosts) == 3
