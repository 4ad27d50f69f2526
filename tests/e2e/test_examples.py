"""Further examples train through the service: images, features of images, clients that share no data, and a
sparse model.
"""

from typing import TYPE_CHECKING, Any

import federated_questions.prepare_data
import image_classification.prepare_data
import pytest

from tests.e2e.frameworks.cases import ALGORITHMS, DATASET, GOOD, prepare_questions
from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from tests.support.server import Server
    from tests.support.trainers.forked_python import ForkedPython
else:
    Server = ForkedPython = Any


@pytest.mark.timeout(300)
def test_images_clients_and_sparse_features_are_learned_from(
    forked_python: ForkedPython, server: Server
) -> None:
    path = f'[process]\npath = "{forked_python.path}"\n[scheduling]\ncapacity = 3\n'
    (server.folder / "config.toml").write_text(f"{ALGORITHMS.read_text()}\n{path}")
    storage = str(server.folder / "storage")
    digits = image_classification.prepare_data.prepare(storage, "digit-images")
    clients = federated_questions.prepare_data.prepare(3, 0.5, storage, "clients")
    version = prepare_questions(server.folder / "storage")
    with server.start() as client:
        small = {"WIDTH": "8", "EPOCHS": "4", "DATA_STAGING": "shards"}
        images = client.submit("images", "digit-images", digits.version, instances=2, parameters=small)
        rounds = {"ROUNDS": "8"}
        federated = client.submit("federated", "clients", clients.version, instances=3, parameters=rounds)
        sparse = {"EPOCHS": "3", "UPDATE": "proximal_svrg", "MAX_DELAY": "1", "LR": "1"}
        hashed = client.submit("hashed", DATASET, version, instances=3, parameters=sparse)
        few = {"WIDTH": "4", "EPOCHS": "2", "QUEUE": "256"}
        version = digits.version
        embedded = client.submit(
            "image-embeddings", "digit-images", digits.version, instances=2, parameters=few
        )
        for job, least in ((images, 0.6), (federated, 0.7), (hashed, GOOD)):
            ended = client.wait(job, timeout=250)
            log = "".join(piece.text for piece in client.logs(job, all_ranks=True))
            assert ended.status == pb.succeed, (ended.diagnosis, log)
            metrics = ended.progress.metrics
            assert metrics["test_accuracy"] > least, metrics
        ended = client.wait(embedded, timeout=100)
        assert ended.status == pb.succeed, ended.diagnosis
        assert ended.progress.metrics["class_accuracy"] > 0.2, "a tenth would be chance"
        top = client.status(images).progress.metrics
        assert 1 >= top["top_k_accuracy"] > top["test_accuracy"]
