"""The service as a process with groups on a Docker engine: names, reports, kills and refusals."""

import json
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.cluster import PROGRAM_IMAGE
from tests.support.docker_engine import DockerEngine
from tests.support.parameters import declared
from tests.support.patience import PATIENCE
from tests.support.server import Server
from tests.support.watching import all_run, comes, printed
from training_service._generated import training_service_pb2 as pb
from training_service.client import TrainingClient
from training_service.client.errors import InvalidRequest

FOREVER = {"RUN_SECONDS": "forever", "PRINT": "up"}
GROUP = ["program-1", "program-1-1-worker", "program-1-2-worker", "program-1-master"]
INSTANCE = "test-e2e"
# Connects from a container to the service's report address, and prints it.
_CALL = """
import os, socket
host, port = os.environ["REPORT_ADDRESS"].rsplit(":", 1)
socket.create_connection((host, int(port)), 10).close()
print(host, bool(os.environ["REPORT_TOKEN"]), flush=True)
"""


@pytest.fixture
def service(docker_engine: DockerEngine, server: Server) -> Iterator[Server]:
    """The service, not started yet; `server` ends all jobs afterwards."""
    text = f"""
        backend = "docker"
        [server]
        insecure = true
        [jobs]
        stop_grace = 1
        [docker]
        base_url = "{docker_engine.url}"
        instance = "{INSTANCE}"
        allowed_labels = ["experiment"]
        [algorithms.program]
        {declared()}
        [algorithms.program.docker]
        image = "{PROGRAM_IMAGE}"
        [algorithms.calling]
        [algorithms.calling.docker]
        image = "{PROGRAM_IMAGE}"
        command = ["python3", "-c", {json.dumps(_CALL)}]
    """
    (server.folder / "config.toml").write_text(text)
    server.address = "0.0.0.0:0"
    yield server
    assert "Traceback" not in server.log.read_text(), server.log.read_text()
    docker_engine.clear(INSTANCE)


def submit(
    client: TrainingClient,
    parameters: dict[str, str],
    algorithm: str = "program",
    instances: int = 3,
    **more: Any,
) -> int:
    return client.submit(algorithm, "1", "v1", instances=instances, parameters=parameters, **more)


def test_a_job_of_three_has_names_ranks_and_logs_and_leaves_nothing(
    service: Server, docker_engine: DockerEngine
) -> None:
    with service.start() as client:
        job = submit(client, FOREVER)
        comes(client, job, all_run)
        assert docker_engine.left(INSTANCE) == GROUP
        for rank in range(3):
            assert next(iter(client.logs(job, rank=rank, follow=True))).text == "up\n"
        client.cancel(job)
        ended = client.wait(job, timeout=PATIENCE)
        assert ended.status == pb.cancelled
        assert [rank.phase for rank in ended.ranks] == [pb.RANK_PHASE_STOPPED] * 3
        assert [printed(client, job, rank) for rank in range(3)] == ["up\n"] * 3
    assert docker_engine.left(INSTANCE) == []


def test_a_killed_service_adopts_its_group_after_a_restart(
    service: Server, docker_engine: DockerEngine
) -> None:
    with service.start() as client:
        job = submit(client, FOREVER)
        comes(client, job, all_run)
    before = {each["Id"] for each in docker_engine.inspect(*GROUP[1:])}
    assert service.end(signal.SIGKILL) == -signal.SIGKILL
    with service.start() as client:
        assert all_run(client.status(job))
        assert next(iter(client.logs(job, rank=1, follow=True))).text == "up\n"
        assert {each["Id"] for each in docker_engine.inspect(*GROUP[1:])} == before
        client.cancel(job)
        assert client.wait(job, timeout=PATIENCE).status == pb.cancelled
    assert docker_engine.left(INSTANCE) == []


@pytest.mark.parametrize("seconds", [0.05, 0.3, 0.8])
def test_a_service_killed_during_a_launch_continues_it(
    service: Server, docker_engine: DockerEngine, seconds: float
) -> None:
    with service.start() as client:
        job = submit(client, FOREVER)
    time.sleep(seconds)
    service.end(signal.SIGKILL)
    with service.start() as client:
        seen = comes(client, job, all_run)
        assert seen.attempt == 1
        assert docker_engine.left(INSTANCE) == GROUP
        for rank in range(3):
            assert next(iter(client.logs(job, rank=rank, follow=True))).text == "up\n"
        client.cancel(job)
        assert client.wait(job, timeout=PATIENCE).status == pb.cancelled
        assert [printed(client, job, rank) for rank in range(3)] == ["up\n"] * 3, "it ran twice"
    assert docker_engine.left(INSTANCE) == []


def test_a_group_that_loses_a_container_is_relaunched(service: Server, docker_engine: DockerEngine) -> None:
    with service.start("-s", "retry.backoff=0.1") as client:
        job = submit(client, FOREVER)
        comes(client, job, all_run)
        docker_engine.docker("rm", "-f", "program-1-2-worker")
        seen = comes(client, job, lambda seen: seen.attempt == 2 and all_run(seen))
        assert docker_engine.left(INSTANCE) == [name.replace("program-1", "program-1-r1") for name in GROUP]
        categories = [move.diagnosis.category for move in seen.moves if move.HasField("diagnosis")]
        assert categories == ["container_removed"]
        client.cancel(job)
        assert client.wait(job, timeout=PATIENCE).attempt == 2
    assert docker_engine.left(INSTANCE) == []


def test_ranks_reach_the_service_at_its_report_address(service: Server) -> None:
    with service.start() as client:
        job = submit(client, {}, "calling", instances=2)  # a group of two always has a network
        ended = client.wait(job, timeout=PATIENCE)
        assert (ended.status, printed(client, job, 1)) == (pb.succeed, "host.docker.internal True\n")


def test_options_that_docker_does_not_support_are_refused_by_name(service: Server) -> None:
    with service.start() as client:
        with pytest.raises(
            InvalidRequest, match=r"pod_options\.priority_class: a request may not set this option"
        ):
            submit(client, {}, pod_options=pb.PodOptions(priority_class="high"))
        with pytest.raises(
            InvalidRequest, match=r"resources\.ephemeral-storage: containers have no such resource"
        ):
            submit(client, {}, pod_options=pb.PodOptions(resources={"ephemeral-storage": "1Gi"}))
        options = pb.PodOptions(resources={"memory": "64Mi"}, labels={"experiment": "a7"})
        job = submit(client, {}, instances=1, pod_options=options)
        assert client.wait(job, timeout=PATIENCE).status == pb.succeed
