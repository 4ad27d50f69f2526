"""The tests that a change can break are found by imports and by places, and the nearest come first."""

import subprocess
from pathlib import Path

import pytest

from tests import changed
from tests.changed import ROOT


def near(*names: str) -> list[str]:
    return [
        path.relative_to(ROOT).as_posix() for path in changed.nearest_first({ROOT / name for name in names})
    ]


@pytest.mark.parametrize(
    ("name", "test"),
    [
        ("job_tracker/logs/archive.py", "tests/unit/logs/test_archive.py"),
        ("job_tracker/domain/naming.py", "tests/unit/domain/naming/test_names.py"),
        ("trainer_images/language_model/train.py", "tests/unit/trainer_images/language_model/test_train.py"),
        ("docs/sweeps.md", "tests/unit/docs/test_sweeps.py"),
        ("docs/sweeps.md", "tests/unit/test_docs.py"),
        ("deploy/kubernetes/README.md", "tests/unit/deploy/test_overlays.py"),
        ("scripts/test", "tests/unit/scripts/test_test.py"),
        ("tests/support/redis_server.py", "tests/integration/redis/test_outages.py"),
        ("tests/integration/redis/conftest.py", "tests/integration/redis/test_leading.py"),
    ],
)
def test_the_tests_of_a_file_are_near_to_it(name: str, test: str) -> None:
    assert test in near(name)[:25]


def test_a_test_that_changed_comes_before_all_others() -> None:
    found = near("job_tracker/domain/naming.py", "tests/e2e/test_logs.py")
    assert found[0] == "tests/e2e/test_logs.py"
    assert len(found) > 100


def test_the_modules_of_a_folder_stand_for_its_other_files() -> None:
    [script] = sorted((ROOT / "job_tracker/store/redis/lua").glob("*.lua"))[:1]
    assert "tests/integration/redis/test_sharing.py" in near(script.relative_to(ROOT).as_posix())


def test_a_program_that_is_started_by_its_name_is_used() -> None:
    assert "tests/unit/trainer_images/language_model/test_train.py" in near(
        "tests/support/trainers/programs/strategies.py"
    )


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(changed, "ROOT", tmp_path)
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    git(tmp_path, "init", "-q", "-b", "main")
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    someone = ("-c", "user.name=Someone", "-c", "user.email=someone@example.com")
    subprocess.run(["git", *someone, *arguments], cwd=folder, check=True)


def commit(folder: Path, text: str) -> None:
    (folder / "tests" / "unit" / "test_x.py").write_text(text)
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "A change")


def test_single_tests_that_are_new_or_edited_are_found(repository: Path) -> None:
    commit(repository, "def test_same(): pass\ndef test_edited(): pass\n")
    commit(repository, "def test_same(): # a comment\n    pass\ndef test_edited(): assert 1\n")
    (repository / "tests" / "unit" / "test_new.py").write_text("def test_new(): pass\ndef helper(): pass\n")
    since = changed.base()
    found = list(changed.changed_tests(changed.changed_files(since), since))
    assert found == ["tests/unit/test_new.py::test_new", "tests/unit/test_x.py::test_edited"]


def test_a_branch_is_compared_with_where_it_left_main(repository: Path) -> None:
    commit(repository, "def test_of_main(): pass\n")
    git(repository, "checkout", "-qb", "branch")
    for number in range(2):
        commit(repository, f"def test_{number}(): pass\n")
    assert changed.base() == changed.git("rev-parse", "main").strip()


def test_a_history_of_one_commit_has_nothing_to_compare_with(repository: Path) -> None:
    commit(repository, "def test_x(): pass\n")
    with pytest.raises(LookupError, match="no earlier commit"):
        changed.base()
