"""Command lines to copy."""

import pytest

from training_service._generated import training_service_pb2 as pb
from training_service.web.commands import grpcurl_line


@pytest.mark.parametrize(("is_encrypted", "options"), [(False, " -plaintext"), (True, "")])
def test_grpcurl_speaks_without_tls_only_to_a_service_without(is_encrypted: bool, options: str) -> None:
    message = pb.GetTrainingStatusRequest(job_id=3)
    assert grpcurl_line("GetTrainingStatus", message, "host:1", "vision", is_encrypted=is_encrypted) == (
        f"grpcurl{options} -H 'x-project: vision' -d '{{\"job_id\": 3}}' host:1 "
        "training.TrainingService/GetTrainingStatus"
    )
