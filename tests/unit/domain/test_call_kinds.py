"""Every call of the API has a kind, so that it has a limit."""

from job_tracker.domain.call_kinds import CHANGING, KINDS, CallKind
from job_tracker.domain.rights import RPCS
from training_service._generated import access_service_pb2, training_reporter_pb2, training_service_pb2


def test_every_call_has_a_kind() -> None:
    assert set(KINDS) == RPCS
    assert set(KINDS.values()) == set(CallKind)


def test_streams_are_of_the_kind_stream() -> None:
    for file in (training_service_pb2, training_reporter_pb2, access_service_pb2):
        for service in file.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                assert (KINDS[method.name] is CallKind.STREAM) == method.server_streaming


def test_calls_that_change_something_are_logged() -> None:
    assert {
        *("Train", "CancelTraining", "AnnotateTraining", "DeleteTraining", "CreateToken", "RevokeToken"),
        *("SetProject", "DeleteProject", "SetMember", "RemoveMember"),
        *("SetAlgorithm", "RemoveAlgorithm", "SetDataset", "RemoveDataset"),
        *("SetQueue", "RemoveQueue"),
        *("RotateReportKey", "RemoveReportKey", "PutManifest", "UploadFiles"),
    } == CHANGING
