"""The role of a caller in a project."""

import pytest

from job_tracker.domain.caller import ALL_PROJECTS, BUILT_IN, Caller, Means, Role
from job_tracker.domain.naming import is_project


def caller(**roles: Role) -> Caller:
    return Caller(name="ada", means=Means.OPEN, roles=roles)


def test_a_caller_has_roles_only_in_its_projects() -> None:
    ada = caller(vision=Role.VIEWER, speech=Role.ADMIN)
    assert [ada.role_in(project) for project in ("vision", "speech", "other")] == [
        Role.VIEWER,
        Role.ADMIN,
        None,
    ]
    assert not ada.is_everywhere


def test_a_role_in_all_projects_counts_in_each_and_lowers_none() -> None:
    ada = caller(**{ALL_PROJECTS: Role.SUBMITTER, "vision": Role.ADMIN, "speech": Role.VIEWER})
    assert [ada.role_in(project) for project in ("vision", "speech", "other")] == [
        Role.ADMIN,
        Role.SUBMITTER,
        Role.SUBMITTER,
    ]
    assert ada.is_everywhere


def test_the_key_for_all_projects_is_not_the_name_of_a_project() -> None:
    assert not is_project(ALL_PROJECTS)


def test_another_project_for_requests_changes_no_role() -> None:
    ada = caller(vision=Role.VIEWER)
    assert ada.using("speech").default_project == "speech"
    assert ada.using("speech").roles == ada.roles


@pytest.mark.parametrize("project", ["default", "any"])
def test_the_built_in_caller_is_the_operator_of_every_project(project: str) -> None:
    assert BUILT_IN.role_in(project) is Role.OPERATOR
