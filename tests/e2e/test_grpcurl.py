"""The calls of the MiniAutoML book, made with the real grpcurl."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.patience import PATIENCE

if TYPE_CHECKING:
    from tests.support.server import Server
else:
    Server = Any


def grpcurl(address: str, method: str, request: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    program = shutil.which("grpcurl", path=str(Path(sys.executable).parent))
    assert program is not None
    command = [
        program,
        "-plaintext",
        *("-connect-timeout", f"{PATIENCE:g}"),
        "-d",
        json.dumps(request),
        address,
        f"training.TrainingService/{method}",
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


def test_a_job_is_submitted_and_followed_as_in_the_book(server: Server) -> None:
    with server.start() as client:
        metadata = {
            "algorithm": "of-the-book",
            "dataset_id": "1",
            "name": "test1",
            "train_data_version_hash": "v1",
            "parameters": {"LR": "4", "EPOCHS": "15", "PARALLEL_INSTANCES": "3"},
        }
        sent = grpcurl(server.address, "Train", {"metadata": metadata})
        assert json.loads(sent.stdout) == {"job_id": 1}
        client.wait(1, timeout=PATIENCE)
        status = json.loads(grpcurl(server.address, "GetTrainingStatus", {"job_id": 1}).stdout)
        assert (status["status"], status["job_id"]) == ("succeed", 1)
        assert status["metadata"] == {**metadata, "output_model_name": "test1"}
        assert "positionInQueue" not in status


def test_an_unknown_job_is_not_found(server: Server) -> None:
    server.start().close()
    answer = grpcurl(server.address, "GetTrainingStatus", {"job_id": 42})
    assert answer.returncode != 0
    assert "Code: NotFound" in answer.stderr
    assert "Message: Job 42 doesn't exist" in answer.stderr


def test_an_empty_field_is_named(server: Server) -> None:
    server.start().close()
    answer = grpcurl(server.address, "Train", {"metadata": {"algorithm": "program", "dataset_id": "1"}})
    assert "Code: InvalidArgument" in answer.stderr
    assert "Message: train_data_version_hash: must not be empty" in answer.stderr
