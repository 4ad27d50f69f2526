"""The files of a folder, and files that cannot be sent."""

import os
from pathlib import Path

import pytest

from job_tracker.trees.manifest import TreeLimits, parsed
from training_service._generated.program_service_pb2 import MissingContent
from training_service.client.errors import InvalidRequest
from training_service.client.run.sending import Sending
from training_service.client.run.working_tree import read_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "train.py").write_text("print()")
    (tmp_path / "src" / "größe.txt").write_text("groß")
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "empty").touch()
    (tmp_path / "src.py").touch()
    return tmp_path


def refusal(folder: Path, **limits: int) -> str:
    with pytest.raises(InvalidRequest) as caught:
        read_folder(folder, **limits)
    return str(caught.value)


def test_the_service_reads_the_manifest_that_the_client_writes(folder: Path) -> None:
    files = read_folder(folder)
    manifest = parsed(files.manifest, TreeLimits())
    assert manifest.tree == files.name
    assert [(file.path, file.is_executable, file.size, file.sha256) for file in manifest.files] == [
        (file.path, file.is_executable, file.size, file.sha256) for file in files.files
    ]
    assert [file.path for file in files.files] == ["empty", "run.sh", "src.py", "src/größe.txt", "train.py"]


def test_the_name_depends_on_the_files_alone(folder: Path) -> None:
    name = read_folder(folder).name
    os.utime(folder / "train.py", (0, 0))
    (folder / "train.py").chmod(0o600)
    (folder / "nothing").mkdir()
    assert read_folder(folder).name == name
    (folder / "train.py").chmod(0o700)
    assert read_folder(folder).name != name


def test_a_link_to_a_file_of_the_folder_is_sent_as_a_file(folder: Path) -> None:
    (folder / "link.py").symlink_to("train.py")
    assert {file.path: file.size for file in read_folder(folder).files}["link.py"] == len("print()")


@pytest.mark.parametrize("target", ["/etc/passwd", "../elsewhere", "/etc", "nowhere", "link", "src"])
def test_a_link_that_leads_elsewhere_is_refused(folder: Path, target: str) -> None:
    (folder.parent / "elsewhere").touch()
    (folder / "link").symlink_to(target)
    assert refusal(folder).startswith("link ")


def test_pipes_are_refused_and_not_read(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    assert "pipe is not a regular file, which cannot be sent" in refusal(folder)


@pytest.mark.parametrize("inner", ["", "inner"])
def test_rules_of_git_in_a_pipe_are_refused_and_not_waited_for(folder: Path, inner: str) -> None:
    (folder / inner).mkdir(exist_ok=True)
    (folder / inner / "file").touch()
    (folder / inner / ".gitignore").unlink(missing_ok=True)
    os.mkfifo(folder / inner / ".gitignore")
    assert ".gitignore cannot be read: [Errno 22] it is not a regular file" in refusal(folder)


def test_a_name_that_is_not_utf_8_is_refused(folder: Path) -> None:
    (folder / os.fsdecode(b"\xff")).touch()
    assert "is not UTF-8; rename the file" in refusal(folder)


def test_a_name_with_a_line_break_is_refused_and_makes_no_other_file(folder: Path) -> None:
    forged = f"a\n644 0 {'0' * 64} forged"
    (folder / forged).touch()
    assert refusal(folder) == f"the name of {forged!r} has a line break; rename the file"


def test_a_small_excess_is_seen_in_the_message(folder: Path) -> None:
    message = refusal(folder, max_bytes=sum(file.size for file in read_folder(folder).files) - 1)
    assert ", 1 byte more than the " in message


def test_large_folders_are_refused_before_a_file_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (folder / "model.bin").open("wb") as file:
        file.truncate(2 << 30)  # the file takes no space on the disk
    monkeypatch.setattr("hashlib.file_digest", None)
    message = refusal(folder)
    assert "have 2.15 GB, 1.07 GB more than the 1.07 GB that are allowed; exclude files with" in message
    assert "The largest are model.bin (2.15 GB), " in message
    (folder / "model.bin").unlink()
    assert "has more than 4 files" in refusal(folder, max_files=4)
    assert "The most are in . (4), src (1)" in refusal(folder, max_files=4)


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    assert "has no files to send" in refusal(tmp_path)
    assert "is not a folder" in refusal(tmp_path / "missing")


def test_files_that_have_changed_are_found(folder: Path) -> None:
    files = read_folder(folder)
    assert files.changed() == []
    (folder / "train.py").write_text("print(1)")
    (folder / "empty").unlink()
    assert files.changed() == ["empty", "train.py"]


def test_a_file_that_a_pipe_has_replaced_has_changed_and_is_not_waited_for(folder: Path) -> None:
    files = read_folder(folder)
    (folder / "train.py").unlink()
    os.mkfifo(folder / "train.py")
    assert files.changed() == ["train.py"]
    missing = [MissingContent(sha256=files.files[-1].sha256, size=files.files[-1].size)]
    [message] = Sending(files, None).contents(missing)
    assert not message.pieces
