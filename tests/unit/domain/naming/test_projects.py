"""Names of projects: parts of paths and of names on engines."""

import pytest

from job_tracker.domain.naming import DEFAULT_PROJECT, home, home_in_store, is_project, job_folder, store_of


@pytest.mark.parametrize("name", ["a", "vision", "team-a", "t2", "a" * 40, DEFAULT_PROJECT])
def test_these_are_names(name: str) -> None:
    assert is_project(name)


@pytest.mark.parametrize(
    "name", ["", "A", "2", "-a", "a-", "a.b", "a/b", "..", "a_b", "a b", "a\n", "é", "a" * 41, "*"]
)
def test_these_are_not(name: str) -> None:
    assert not is_project(name)


def test_each_project_has_its_own_folders() -> None:
    assert job_folder(home("vision", "1a2b3c4d"), 7) == "vision/1a2b3c4d-7"


def test_a_group_that_was_found_shows_its_store_and_no_project() -> None:
    assert store_of(home_in_store("1a2b3c4d")) == store_of(home("vision", "1a2b3c4d")) == "1a2b3c4d"
    assert not is_project(home_in_store("1a2b3c4d").partition("/")[0])
