"""Mistakes that are found before a request is sent."""

import pytest

from training_service._generated.training_service_pb2 import Program, TrainRequest
from training_service.client import InvalidRequest, requests


def test_a_command_in_one_text_is_refused_with_the_list_that_is_meant() -> None:
    of_program = TrainRequest(program=Program(tree="0" * 64, command=["python", "train.py"]))
    with pytest.raises(InvalidRequest, match=r"^command: 'python a\.py' is .*list.*\['python', 'a\.py'\]$"):
        requests.program("0" * 64, "python a.py", framework="", environment=None, version="")
    with pytest.raises(InvalidRequest, match=r"^command: 'python a"):
        requests.changed(
            of_program,
            parameters=None,
            name=None,
            dataset_id=None,
            dataset_version=None,
            request_key=None,
            command="python a.py",
        )


def test_a_queue_without_jobs_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"^limit: 0 is not allowed; use at least 1$"):
        requests.queue("", "", 0)
