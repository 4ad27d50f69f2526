"""trainctl artifacts and fetch."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fake_service import ServerInThread
    from tests.support.trainctl import Trainctl


def test_artifacts_are_lines_in_a_pipe_and_a_table_on_a_terminal(
    trained: ServerInThread, trainctl: Trainctl
) -> None:
    assert trainctl("artifacts", "1").stdout.splitlines() == [
        "model.pt\t\t7\t\ts3://models/model.pt",
        "sub/labels.json\t\t2\t\ts3://models/sub/labels.json",
    ]
    trained.set_job(2)
    assert trainctl("artifacts", "2").stdout == "", "no line for no artifact"
    table = trainctl.on_terminal("artifacts", "1").stdout
    assert "model.pt" in table
    assert "Made from" in table


def test_fetch_downloads_all_or_the_named_artifacts(
    trained: ServerInThread, trainctl: Trainctl, tmp_path: Path
) -> None:
    result = trainctl("fetch", "1", "--to", str(tmp_path / "all"))
    assert result.exit_code == 0
    assert f"fetched 2 files to {tmp_path / 'all'}" in result.stderr
    assert (tmp_path / "all" / "model.pt").read_bytes() == b"weights"
    assert (tmp_path / "all" / "sub" / "labels.json").read_bytes() == b"[]"
    assert trainctl("fetch", "1", "model.pt", "--to", str(tmp_path / "one")).exit_code == 0
    assert [path.name for path in (tmp_path / "one").rglob("*")] == ["model.pt"]


def test_fetch_prints_json_and_draws_bars_only_on_terminals(
    trained: ServerInThread, trainctl: Trainctl, tmp_path: Path
) -> None:
    result = trainctl("fetch", "1", "--to", str(tmp_path / "a"), "--json")
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {
            "job_id": 1,
            "name": name,
            "path": str(tmp_path / "a" / name),
            "size": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        for name, content in trained.service.files[1].items()
    ]
    assert result.stderr == f"trainctl: fetched 2 files to {tmp_path / 'a'}\n"
    plain = trainctl("fetch", "1", "--to", str(tmp_path / "b"))
    assert (plain.stdout, plain.stderr) == ("", f"trainctl: fetched 2 files to {tmp_path / 'b'}\n")


def test_fetch_replaces_a_file_only_with_force(
    trained: ServerInThread, trainctl: Trainctl, tmp_path: Path
) -> None:
    (tmp_path / "model.pt").write_text("mine")
    result = trainctl("fetch", "1", "model.pt", "--to", str(tmp_path))
    assert (result.exit_code, "exists" in result.stderr) == (2, True)
    assert (tmp_path / "model.pt").read_text() == "mine"
    assert trainctl("fetch", "1", "model.pt", "--to", str(tmp_path), "--force").exit_code == 0
    assert (tmp_path / "model.pt").read_bytes() == b"weights"


def test_fetch_refuses_a_file_with_a_wrong_checksum(
    trained: ServerInThread, trainctl: Trainctl, tmp_path: Path
) -> None:
    trained.service.digests["model.pt"] = hashlib.sha256(b"other").hexdigest()
    result = trainctl("fetch", "1", "--to", str(tmp_path))
    assert result.exit_code != 0
    assert "its SHA-256 differs" in result.stderr
    assert not list(tmp_path.glob("model*"))


def test_fetch_writes_names_of_maximum_length_and_reports_what_it_cannot_write(
    trained: ServerInThread, trainctl: Trainctl, tmp_path: Path
) -> None:
    longest, too_long = "n" * 255, "n" * 256
    trained.service.files[1] = {longest: b"1", too_long: b"2"}
    assert trainctl("fetch", "1", longest, "--to", str(tmp_path / "a")).exit_code == 0
    assert [path.name for path in (tmp_path / "a").iterdir()] == [longest]
    (tmp_path / "file").touch()
    for name, to in ((too_long, "a"), (longest, "file")):
        result = trainctl("fetch", "1", name, "--to", str(tmp_path / to))
        assert (result.exit_code, "Traceback" in result.stderr) == (2, False)
        assert "give another folder with --to" in " ".join(result.stderr.replace("│", "").split())
    assert [path.name for path in (tmp_path / "a").iterdir()] == [longest]


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x"])
def test_fetch_refuses_names_outside_the_folder(
    trained: ServerInThread, trainctl: Trainctl, tmp_path: Path, name: str
) -> None:
    trained.service.files[1] = {name: b"x"}
    result = trainctl("fetch", "1", "--to", str(tmp_path / "to"))
    assert result.exit_code != 0
    assert "a file name outside the folder" in result.stderr
    assert not list(tmp_path.rglob("x"))


def test_fetch_lists_the_artifacts_if_the_name_is_unknown(
    trained: ServerInThread, trainctl: Trainctl, tmp_path: Path
) -> None:
    assert "Its files: model.pt, sub/labels.json" in trainctl("fetch", "1", "nope").stderr
    assert "has no files (yet)" in trainctl("fetch", "2").stderr


def test_diff_prints_the_changes_as_they_are_in_a_pipe_and_escaped_on_a_terminal(
    trained: ServerInThread, trainctl: Trainctl
) -> None:
    trained.service.changes[1] = b"@@ -1 +1 @@\n-a\n+\x1b[2J\xff\n"
    assert trainctl("diff", "1").stdout_bytes == trained.service.changes[1]
    assert trainctl.on_terminal("diff", "1").stdout == "@@ -1 +1 @@\n-a\n+\\x1b[2J\\xff\n"
    assert trainctl("diff", "2").exit_code == 3
