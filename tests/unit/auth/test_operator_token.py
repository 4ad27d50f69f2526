"""The file with the operator's token."""

import stat
from pathlib import Path

from job_tracker.access.tokens import OPERATOR_ID, digest_of, id_of
from training_service.auth.operator_token import remove_operator_token, write_operator_token


def test_only_the_services_user_can_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    digest = write_operator_token(folder, "127.0.0.1:51001")
    file = folder / "operator-token"
    text, address = file.read_text().splitlines()
    assert (id_of(text), digest_of(text), address) == (OPERATOR_ID, digest, "127.0.0.1:51001")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [*folder.iterdir()] == [file]


def test_each_start_replaces_it(tmp_path: Path) -> None:
    digests = {write_operator_token(tmp_path, "127.0.0.1:1") for _ in range(2)}
    assert len(digests) == 2


def test_it_is_not_written_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("kept")
    for name in ("operator-token", "operator-token.new"):
        (tmp_path / name).symlink_to(target)
    write_operator_token(tmp_path, "127.0.0.1:1")
    assert target.read_text() == "kept"


def test_an_open_service_removes_it(tmp_path: Path) -> None:
    write_operator_token(tmp_path, "127.0.0.1:1")
    remove_operator_token(tmp_path)
    remove_operator_token(tmp_path)
    assert [*tmp_path.iterdir()] == []
