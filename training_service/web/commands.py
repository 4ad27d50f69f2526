"""Command lines to copy, which do the same as a page."""

import json
from typing import Any

from google.protobuf.json_format import MessageToDict

from training_service._generated import training_service_pb2 as pb
from training_service.client.submissions import joined, words_of


def trainctl(*words: str) -> str:
    """Return a command line of trainctl."""
    return joined(["trainctl", *words])


def submit_line(request: pb.TrainRequest, project: str) -> str:
    """Return the command of trainctl that submits the request to the project.

    The parts of the request for which trainctl has no option are left out.
    """
    words, _ = words_of(request, project)
    return trainctl(*words)


def grpcurl_line(call: str, message: Any, address: str, project: str = "", *, is_encrypted: bool) -> str:
    """Return the grpcurl command that makes the call `call` of training.TrainingService."""
    content = json.dumps(MessageToDict(message, preserving_proto_field_name=True))
    header = ["-H", f"x-project: {project}"] if project else []
    unencrypted = [] if is_encrypted else ["-plaintext"]
    return joined(
        [
            *("grpcurl", *unencrypted, *header, "-d", content),
            *(address, f"training.TrainingService/{call}"),
        ]
    )
