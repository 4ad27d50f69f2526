"""The complete environment for Horovod, compared with its documentation."""

from dataclasses import replace

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


def test_several_processes_of_an_instance_are_started_by_the_launcher() -> None:
    horovod, of_two = FRAMEWORKS["horovod"], replace(THREE, processes_per_instance=2)
    variables = horovod.environment(of_two, 1)
    assert {
        name: variables[f"HOROVOD_{name}"]
        for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    } == {
        "RANK": "2",
        "SIZE": "6",
        "LOCAL_RANK": "0",
        "LOCAL_SIZE": "2",
        "CROSS_RANK": "1",
        "CROSS_SIZE": "3",
    }
    assert (variables["WORLD_SIZE"], variables["RANK"], variables["LOCAL_WORLD_SIZE"]) == ("6", "2", "2")
    command = ("python", "t.py")
    assert horovod.command(of_two, command) == ("python", "-m", "trainer_kit.horovod_instance", *command)
    assert horovod.command(THREE, command) == command
