"""The file of projects."""

from pathlib import Path

import pytest

from job_tracker.domain.access import Project
from job_tracker.domain.caller import Role
from job_tracker.domain.policies import ProjectLimits
from training_service.settings.projects import read_projects


def read(tmp_path: Path, text: str) -> dict[str, Project]:
    file = tmp_path / "projects.toml"
    file.write_text(text)
    return read_projects(file, configured=["configured"], stored=["stored"])


def test_projects_have_members_and_limits(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        """
        [projects.vision]
        max_queued = 7
        members = { alice = "admin", "CN=bob,O=Example" = "viewer" }
        [projects.speech]
        """,
    )
    vision = Project(
        name="vision",
        members={"alice": Role.ADMIN, "CN=bob,O=Example": Role.VIEWER},
        limits=ProjectLimits(max_queued=7),
    )
    assert found == {"vision": vision, "speech": Project(name="speech")}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[projects.vision", "not valid TOML"),
        ('[projects.vision]\nmembers = { alice = "operator" }', "'viewer', 'submitter' or 'admin'"),
        ('[projects.vision]\nmembers = { "" = "viewer" }', "'' is not the name of a member"),
        ('[projects.vision]\nmembers = { "a\\u001b" = "viewer" }', "is not the name of a member"),
        ("[projects.Vision]", "'Vision' is not the name of a project"),
        ("[projects.vision]\nmax_queued = 0", "projects.vision.max_queued: "),
        ("[projects.vision]\nquota = 1", "projects.vision.quota: "),
        ("[auth]", "auth: "),
        (
            "[projects.stored]",
            "project stored was declared through the API, too; remove it from the file, or delete",
        ),
        ("[projects.configured]", "project configured is in the configuration, too; remove one of the two"),
    ],
)
def test_a_problem_is_one_line_with_the_file(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ValueError) as refused:
        read(tmp_path, text)
    assert problem in str(refused.value)
    assert str(refused.value).startswith(str(tmp_path / "projects.toml"))
    assert "\n" not in str(refused.value)


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(ValueError, match="cannot be read"):
            read_projects(path, configured=[], stored=[])
