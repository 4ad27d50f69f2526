"""Further examples train through the service: images, features of images, clients that share no data, and a
sparse model.
"""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import federated_questions.prepare_data
import image_classification.prepare_data

from tests.e2e.frameworks.cases import ALGORITHMS, DATASET, GOOD, prepare_questions
from tests.support.trainings import end_of
from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from tests.support.server import Server
    from tests.support.trainers.forked_python import ForkedPython
    from training_service.client import TrainingClient
else:
    Server = ForkedPython = TrainingClient = Any


def test_images_are_learned_from_with_labels(forked_python: ForkedPython, server: Server) -> None:
    small = {"WIDTH": "8", "EPOCHS": "4", "DATA_STAGING": "shards"}
    metrics = learned_from_images(forked_python, server, "images", small)
    assert 1 >= metrics["top_k_accuracy"] > metrics["test_accuracy"] > 0.6, metrics


def test_images_are_learned_from_without_labels(forked_python: ForkedPython, server: Server) -> None:
    few = {"WIDTH": "4", "EPOCHS": "2", "QUEUE": "256"}
    metrics = learned_from_images(forked_python, server, "image-embeddings", few)
    assert metrics["class_accuracy"] > 0.2, f"a tenth would be chance: {metrics}"


def learned_from_images(
    python: ForkedPython, server: Server, algorithm: str, parameters: dict[str, str]
) -> dict[str, float]:
    digits = image_classification.prepare_data.prepare(str(server.folder / "storage"), "digit-images")
    with serving(server, python) as client:
        job = client.submit(algorithm, "digit-images", digits.version, instances=2, parameters=parameters)
        return metrics_of(client, job)


def test_clients_and_sparse_features_are_learned_from(forked_python: ForkedPython, server: Server) -> None:
    clients = federated_questions.prepare_data.prepare(3, 0.5, str(server.folder / "storage"), "clients")
    version = prepare_questions(server.folder / "storage")
    with serving(server, forked_python) as client:
        rounds = {"ROUNDS": "8"}
        federated = client.submit("federated", "clients", clients.version, instances=3, parameters=rounds)
        sparse = {"EPOCHS": "3", "UPDATE": "proximal_svrg", "MAX_DELAY": "1", "LR": "1"}
        hashed = client.submit("hashed", DATASET, version, instances=3, parameters=sparse)
        for job, least in ((federated, 0.7), (hashed, GOOD)):
            metrics = metrics_of(client, job)
            assert metrics["test_accuracy"] > least, metrics


def serving(server: Server, python: ForkedPython) -> AbstractContextManager[TrainingClient]:
    """Start the service with the algorithms of the examples. Their processes are forked with all modules
    imported.
    """
    path = f'[process]\npath = "{python.path}"\n[scheduling]\ncapacity = 3\n'
    (server.folder / "config.toml").write_text(f"{ALGORITHMS.read_text()}\n{path}")
    return server.start()


def metrics_of(client: TrainingClient, job: int) -> dict[str, float]:
    """Wait for the success of a job, and return its last metrics."""
    ended = end_of(client, job)
    log = "".join(piece.text for piece in client.logs(job, all_ranks=True))
    assert ended.status == pb.succeed, (ended.diagnosis, log)
    return dict(ended.progress.metrics)
