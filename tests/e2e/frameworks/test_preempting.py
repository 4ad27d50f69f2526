"""On real engines, a training run yields to a job of higher priority, and continues from its checkpoint."""

import re
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.frameworks.cases import DATASET, prepare_questions
from tests.support.cluster import PROGRAM_IMAGE, Cluster
from tests.support.docker_engine import DockerEngine
from tests.support.mounted import in_containers, let_others_write, on_pods, toml_of
from tests.support.patience import PATIENCE
from tests.support.place import Place
from tests.support.watching import comes, seen
from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from tests.support.server import Server
    from training_service.client import TrainingClient
else:
    Server = TrainingClient = Any

LONG = {"EPOCHS": "100000", "CHECKPOINT_EVERY_SECONDS": "600", "CHECKPOINT_GRACE_SECONDS": "110"}
"""Nothing is saved before the notice."""
SLOWLY = """
import runpy, time
from torch.optim import SGD
step = SGD.step
SGD.step = lambda *given, **named: (time.sleep(0.1), step(*given, **named))[1]
runpy.run_module("pytorch_questions.train", run_name="__main__")
"""
"""A training run that sleeps in each step, so that other processes get the processors."""
DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(1e6)"
GRACE = 120
"""Seconds in which the training saves its first checkpoint. It ends as soon as it has saved."""
SHORT_GRACE = 12
"""Seconds after which a program that ignores the notice is killed."""
ONCE = ("-s", "retry.max_attempts=1")
INSTANCE = "test-preempting"


def configure(server: Server, engine: str, settings: dict[str, Any], algorithms: dict[str, Any]) -> str:
    """Configure a service whose jobs may stop jobs of lower priority. Return the version of the data."""
    image = {"image": PROGRAM_IMAGE}
    of_tests = {
        "deaf": {engine: {**image, "command": ["python3", "-c", DEAF]}},
        "urgent": {engine: {**image, "command": ["python3", "-c", "print('done')"]}},
    }
    training = {**algorithms["pytorch"]}
    training[engine] = {**training[engine], "command": ["python", "-c", SLOWLY]}
    everything = {
        "backend": engine,
        engine: settings,
        "jobs": {"stop_grace": GRACE},
        "scheduling": {"capacity": 3, "queues": {"default": {"preemption": {"by_priority": True}}}},
        "algorithms": {"pytorch": training, **of_tests},
    }
    (server.folder / "config.toml").write_text(toml_of(everything))
    version = prepare_questions(server.folder / "storage")
    let_others_write(server.folder / "storage")
    return version


def first_trains(client: TrainingClient, version: str) -> int:
    job = client.submit("pytorch", DATASET, version, instances=2, parameters=LONG)
    assert not seen(client, job, step=10).progress.HasField("checkpoint")
    return job


def deaf_runs(client: TrainingClient) -> int:
    """Start a job of a low priority that ignores the notice."""
    job = client.submit("deaf", DATASET, "v1", priority="low")
    assert next(iter(client.logs(job, rank=0, follow=True))).text == "up\n"
    return job


def stops_for_another(client: TrainingClient, job: int) -> None:
    """Let a job of a higher priority stop the training."""
    watch = client.watch(job)
    next(watch)  # from now on, the service sends each status, even if this test reads it much later
    urgent = client.submit("urgent", DATASET, "v1", instances=2, priority="high")
    stopped = next(found for found in watch if found.preemptions == 1)
    assert stopped.moves[-1].preempted == f"Preempted: job {urgent} has a higher priority."
    saved = stopped.progress.checkpoint.step
    assert stopped.progress.step - 1 <= saved, "at most one step is lost"
    assert client.wait(urgent, timeout=PATIENCE).status == pb.succeed
    assert goes_on(client, job, attempt=2) == saved


def deaf_is_killed(server: Server, deaf: int, training: int) -> None:
    """Let a job of a higher priority stop the job that ignores the notice.

    For this, a service with a short grace period takes over.
    """
    assert server.end(signal.SIGTERM) == 0
    with server.start(*ONCE, "-s", f"jobs.stop_grace={SHORT_GRACE}") as client:
        asked_at = time.monotonic()
        urgent = client.submit("urgent", DATASET, "v1", priority="high")
        comes(client, deaf, lambda found: found.preemptions == 1)
        # The time shows the kill: a cluster may remove a killed pod before it reports the exit code.
        assert time.monotonic() > asked_at + SHORT_GRACE - 1, (
            "it has ignored the notice, and was killed after the grace period"
        )
        client.cancel(deaf)  # while the job waits: otherwise it would use its whole grace period
        assert client.wait(urgent, timeout=PATIENCE).status == pb.succeed
        client.cancel(training)
        client.wait(training, timeout=PATIENCE)


def goes_on(client: TrainingClient, job: int, attempt: int) -> int:
    """Wait until the job trains in this attempt. Return the step from which it continues."""
    again = comes(client, job, lambda found: found.attempt == attempt and found.progress.step > 0)
    assert again.max_attempts == attempt, "no earlier attempt counts"
    assert not any(move.HasField("diagnosis") for move in again.moves)
    log = "".join(piece.text for piece in client.logs(job, attempt=attempt))
    resumed = re.search(r"resuming from step (\d+)", log)
    assert resumed is not None, log
    return int(resumed[1])


def test_a_training_in_containers_gives_way_and_goes_on(docker_engine: DockerEngine, server: Server) -> None:
    settings = {"base_url": docker_engine.url, "instance": INSTANCE}
    storage = server.folder / "storage"
    version = configure(server, "docker", settings, in_containers(PROGRAM_IMAGE, storage))
    try:
        with server.start(*ONCE) as client:
            job, deaf = first_trains(client, version), deaf_runs(client)
            stops_for_another(client, job)
        deaf_is_killed(server, deaf, job)
    finally:
        docker_engine.clear(INSTANCE)


@pytest.mark.cluster
def test_a_training_in_pods_gives_way_and_goes_on_and_so_it_does_after_an_eviction(
    cluster: Cluster, namespace: str, program_image: str, server: Server
) -> None:
    if cluster.provider != "debian":
        pytest.skip(f"pods on {cluster.provider} cannot run the software of this machine")
    settings = {"kubeconfig": str(cluster.kubeconfig), "namespace": namespace}
    storage = server.folder / "storage"
    version = configure(server, "kubernetes", settings, on_pods(program_image, storage))
    place = Place(cluster, namespace)
    with server.start(*ONCE) as client:
        job, deaf = first_trains(client, version), deaf_runs(client)
        stops_for_another(client, job)
        done = client.status(job).progress.step
        place.evict(f"pytorch-{job}-r1-1-worker")
        assert goes_on(client, job, attempt=3) >= done
        ended = client.status(job)
        assert (ended.evictions, ended.preemptions) == (1, 1)
        [why] = [move.evicted for move in ended.moves if move.evicted]
        assert "rank 1" in why
    deaf_is_killed(server, deaf, job)
