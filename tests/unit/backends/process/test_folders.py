"""Logs are removed from a stopped group as a whole: a reader would take a part for the complete log."""

from pathlib import Path

import pytest

from job_tracker.backends.process.folders import Folders
from job_tracker.domain.group import GroupRef
from job_tracker.files.untrusted import Place
from tests.support.jobs import NOON

GROUP = GroupRef("program-1", 1, 1)


class Killed(BaseException):
    pass


def test_a_kill_during_removal_leaves_no_log_and_a_sweep_removes_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = Folders(tmp_path)
    folder = folders.create(GROUP, ["master", "worker"], [20_000])
    for rank in range(2):
        folder.rank(rank).log.path.mkdir(parents=True)
        (folder.rank(rank).log.path / "0").write_text("line\n")
    folders.retire(folder, None)
    assert folders.rank(GROUP, 1) is not None

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Place, "remove", killed)
        with pytest.raises(Killed):
            folders.remove_logs(GROUP)
    assert [folders.rank(GROUP, rank) for rank in range(2)] == [None, None]
    assert folders.stopped() == []
    folders.sweep(NOON)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
