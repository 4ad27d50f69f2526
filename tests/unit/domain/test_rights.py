"""The table of rights has a row for each operation and each call, and denies everything else."""

import pytest

from job_tracker.access.operations import Access
from job_tracker.access.report_keys import ReportKeyAccess
from job_tracker.access.service_view import ServiceView
from job_tracker.declarations.operations import Declarations
from job_tracker.domain import rights
from job_tracker.domain.caller import Role
from job_tracker.domain.errors import Forbidden, JobNotFound
from job_tracker.domain.rights import (
    ACCESS_RIGHTS,
    BY_ANY_CALLER,
    BY_REPORT_TOKEN,
    CATALOG_RIGHTS,
    PROGRAM_RIGHTS,
    RIGHTS,
    RPCS,
    SERVICE_RIGHTS,
)
from job_tracker.jobs import Jobs
from job_tracker.trees.operations import Programs
from tests.support.callers import caller_with
from tests.support.jobs import job_of, spec
from training_service._generated import (
    access_service_pb2,
    catalog_service_pb2,
    program_service_pb2,
    training_reporter_pb2,
    training_service_pb2,
)

READING = {
    "get",
    "queue",
    "explain",
    "snapshot",
    "list",
    "watch",
    "logs",
    "metrics",
    "artifacts",
    "fetch",
    "changes",
}
OF_ADA = job_of(spec(project="vision", submitted_by="ada"))
OF_BOB = job_of(spec(project="vision", submitted_by="bob"))
OLD = job_of(spec(project="vision"))


def test_every_operation_of_jobs_has_a_row() -> None:
    assert set(RIGHTS) == {name for name, each in vars(Jobs).items() if callable(each) and name[0] != "_"}


def test_every_operation_of_access_has_a_row_unless_it_needs_no_role() -> None:
    operations = {
        name
        for part in (Access, ReportKeyAccess)
        for name, each in vars(part).items()
        if callable(each) and name[0] != "_"
    }
    assert set(ACCESS_RIGHTS) == operations - {"list_projects"}


def test_every_operation_of_programs_has_a_row_but_the_one_of_admission() -> None:
    operations = {name for name, each in vars(Programs).items() if callable(each) and name[0] != "_"}
    assert set(PROGRAM_RIGHTS) == operations - {"require", "use_changes"}


def test_every_operation_of_declarations_has_a_row() -> None:
    operations = {name for name, each in vars(Declarations).items() if callable(each) and name[0] != "_"}
    assert set(CATALOG_RIGHTS) == operations


def test_every_operation_on_the_service_has_a_row() -> None:
    operations = {name for name, each in vars(ServiceView).items() if callable(each) and name[0] != "_"}
    assert set(SERVICE_RIGHTS) == operations


def test_every_call_of_the_proto_files_has_a_row() -> None:
    calls = [
        method
        for file in (
            training_service_pb2,
            training_reporter_pb2,
            access_service_pb2,
            program_service_pb2,
            catalog_service_pb2,
        )
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods_by_name
    ]
    assert set(calls) == RPCS
    assert len(calls) == len(RPCS), "names are unique among the services"
    tables = (RIGHTS, ACCESS_RIGHTS, PROGRAM_RIGHTS, CATALOG_RIGHTS, BY_ANY_CALLER, BY_REPORT_TOKEN)
    assert len(RPCS) == sum(map(len, tables)), "each call is in one row only"


def allowed(role: Role | None) -> set[str]:
    def may(operation: str) -> bool:
        try:
            rights.check(caller_with(role), operation, "vision")
        except Forbidden:
            return False
        return True

    return {operation for operation in RIGHTS if may(operation)}


def test_each_role_allows_more_than_the_one_before() -> None:
    assert allowed(None) == set()
    assert allowed(Role.VIEWER) == READING
    assert allowed(Role.SUBMITTER) == READING | {"submit", "cancel", "annotate", "delete"}
    assert allowed(Role.ADMIN) == allowed(Role.OPERATOR) == set(RIGHTS)


@pytest.mark.parametrize("job", [OF_BOB, OLD], ids=["of another", "of an unknown caller"])
def test_a_submitter_cancels_only_its_own_jobs(job: object) -> None:
    submitter, admin = caller_with(Role.SUBMITTER), caller_with(Role.ADMIN)
    rights.check_job(submitter, "cancel", OF_ADA)
    with pytest.raises(Forbidden, match="admin"):
        rights.check_job(submitter, "cancel", job)  # type: ignore[arg-type]
    rights.check_job(admin, "cancel", job)  # type: ignore[arg-type]


def test_what_has_no_row_is_denied_to_everybody() -> None:
    operator = caller_with(Role.OPERATOR)
    with pytest.raises(Forbidden, match="'erase' is denied"):
        rights.check(operator, "erase", "vision")
    with pytest.raises(Forbidden, match="'erase' is denied"):
        rights.check_job(operator, "erase", OF_ADA)


def test_a_job_of_another_project_does_not_exist() -> None:
    with pytest.raises(JobNotFound) as caught:
        rights.check_job(caller_with(Role.ADMIN, "speech"), "get", OF_ADA)
    assert str(caught.value) == str(JobNotFound(OF_ADA.id))


def test_messages_name_project_role_and_caller() -> None:
    with pytest.raises(Forbidden) as caught:
        rights.check(caller_with(Role.VIEWER), "submit", "vision")
    assert str(caught.value) == (
        "project vision: only a caller with the role submitter or a higher one may submit jobs; ada is viewer"
    )
    with pytest.raises(Forbidden) as caught:
        rights.check(caller_with(None), "list", "secret")
    assert str(caught.value).endswith("may list jobs; ada has no role there")
    with pytest.raises(Forbidden) as caught:
        rights.check_job(caller_with(Role.SUBMITTER), "cancel", OF_BOB)
    assert str(caught.value).endswith("may cancel jobs of others; ada is submitter, and bob submitted job 1")
