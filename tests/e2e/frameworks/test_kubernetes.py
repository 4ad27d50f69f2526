"""Every framework trains for real in pods, through the service. The pods mount this machine's software."""

from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.frameworks.cases import CASES, Case, check, prepare_questions, train
from tests.support.cluster import Cluster, address_for_pods
from tests.support.mounted import let_others_write, on_pods, toml_of
from tests.support.ports import free_port
from tests.support.trainings import end_of
from tests.support.watching import seen
from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from tests.support.server import Server
else:
    Server = Any

pytestmark = pytest.mark.cluster


@pytest.fixture
def service(cluster: Cluster, namespace: str, program_image: str, server: Server) -> Server:
    """The service on the cluster, not started yet. `server` ends all jobs afterwards."""
    if cluster.provider != "debian":
        pytest.skip(f"pods on {cluster.provider} cannot run the software of this machine")
    storage = server.folder / "storage"
    port = free_port()
    server.address = f"0.0.0.0:{port}"
    kubernetes = {"kubeconfig": str(cluster.kubeconfig), "namespace": namespace}
    settings = {
        "backend": "kubernetes",
        "server": {"insecure": True},
        "kubernetes": kubernetes,
        "reports": {"address": f"{address_for_pods(cluster)}:{port}"},
        "algorithms": on_pods(program_image, storage),
    }
    (server.folder / "config.toml").write_text(toml_of(settings))
    return server


@pytest.fixture
def version(server: Server) -> str:
    made = prepare_questions(server.folder / "storage")
    let_others_write(server.folder / "storage")
    return made


@pytest.mark.timeout(600, func_only=True)
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.usefixtures("environment")
def test_a_framework_trains_in_pods(service: Server, version: str, case: Case) -> None:
    with service.start() as client:
        job = train(client, case, version)
        end_of(client, job)
        check(client, case, job)


def test_a_lost_worker_pod_is_replaced_within_the_attempt(
    service: Server, version: str, cluster: Cluster, namespace: str
) -> None:
    often = {"EPOCHS": "20", "CHECKPOINT_EVERY_STEPS": "20", "MIN_INSTANCES": "2"}
    case = Case("pytorch-elastic", 3, often)
    with service.start() as client:
        job = train(client, case, version)
        before = seen(client, job, step=1)
        name = f"pytorch-elastic-{job}-2-worker"
        cluster.kubectl("delete", "pod", "-n", namespace, name, "--grace-period=0", "--force")
        seen(client, job, step=before.progress.step, restarts=1)
        ended = end_of(client, job)
        assert (ended.status, ended.attempt) == (pb.succeed, 1), ended
        check(client, case, job)
