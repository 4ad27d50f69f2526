"""Files are read again when they have changed, and never replaced by unusable ones."""

import os
import threading
from pathlib import Path

import pytest

from tests.support.certificates import replace
from tests.support.patience import PATIENCE
from training_service.auth.live import Live, Unusable


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("first")
    return path


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def live(file: Path, clock: Clock) -> Live[str]:
    def read() -> str:
        try:
            text = file.read_text()
        except OSError as error:
            raise Unusable(f"setting: {file}: {error.strerror}") from error
        if "bad" in text:
            raise Unusable(f"setting: {file}: {text}")
        return text

    return Live("setting", [file], read, clock=clock)


def test_a_changed_file_is_read_again_once_in_a_while(live: Live[str], file: Path, clock: Clock) -> None:
    replace(file, b"later")
    assert live.get() == "first", "looked at a moment ago"
    clock.now += 1
    assert live.get() == "later"


def test_a_file_that_has_not_changed_is_not_read_again(live: Live[str], clock: Clock) -> None:
    before = live.get()
    clock.now += 1
    assert live.get() is before


def test_a_file_whose_content_stays_is_not_a_change(
    live: Live[str], file: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    before = live.get()
    file.chmod(0o640)  # a kubelet sets owner and mode of a mounted Secret again each minute
    replace(file, b"first")
    clock.now += 1
    assert live.get() is before
    assert not caplog.records


def test_a_pipe_is_refused_by_name_and_not_waited_for(live: Live[str], file: Path, clock: Clock) -> None:
    file.unlink()
    os.mkfifo(file)
    for _ in range(2):
        clock.now += 1
        assert live.get() == "first"
    assert live.problem == f"setting: {file}: it is not a regular file"
    with pytest.raises(Unusable, match=r"setting: .* it is not a regular file"):
        Live("setting", [file], file.read_text)


@pytest.mark.parametrize("how", ["replaced", "overwritten", "removed", "a link"])
def test_an_unusable_change_is_logged_once_and_the_content_from_before_stays(
    live: Live[str], file: Path, clock: Clock, caplog: pytest.LogCaptureFixture, how: str, tmp_path: Path
) -> None:
    if how == "replaced":
        replace(file, b"bad one")
    elif how == "overwritten":
        file.write_text("bad one")  # of another size: its time may be that of "first"
    else:
        file.unlink()
        if how == "a link":
            file.symlink_to(tmp_path / "nowhere")
    for _ in range(3):
        clock.now += 1
        assert live.get() == "first"
    [record] = caplog.records
    assert record.levelname == "ERROR"
    assert record.message == f"{live.problem}; the previous content stays in use"
    assert live.problem
    assert live.problem.startswith(f"setting: {file}: ")


def test_a_change_that_becomes_usable_is_used(live: Live[str], file: Path, clock: Clock) -> None:
    file.write_text("bad")
    for _ in range(2):
        clock.now += 1
        assert live.get() == "first"
    assert live.problem
    file.write_text("good")
    clock.now += 1
    assert live.get() == "good"
    assert live.problem is None


def test_files_that_are_being_replaced_one_after_the_other_are_no_problem(
    live: Live[str], file: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for content in (b"bad", b"still bad", b"good"):
        assert live.get() == "first"
        assert live.problem is None
        replace(file, content)
        clock.now += 1
    assert live.get() == "good"
    assert "stays in use" not in caplog.text


def test_the_target_of_links_may_change_as_in_mounted_secrets(tmp_path: Path, clock: Clock) -> None:
    """Kubernetes replaces the link ..data, and leaves the link of the file as it is."""
    for version in ("one", "two"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "file").write_text(version)
    (tmp_path / "data").symlink_to("one")
    (tmp_path / "file").symlink_to("data/file")
    live = Live("setting", [tmp_path / "file"], (tmp_path / "file").read_text, clock=clock)
    (tmp_path / "new").symlink_to("two")
    (tmp_path / "new").rename(tmp_path / "data")
    clock.now += 1
    assert live.get() == "two"


def test_a_slow_read_holds_up_no_other_thread(file: Path, clock: Clock) -> None:
    reading, go_on = threading.Event(), threading.Event()
    contents = iter(["first", "second"])

    def read() -> str:
        content = next(contents)
        if content == "second":
            reading.set()
            assert go_on.wait(PATIENCE)
        return content

    live = Live("setting", [file], read, clock=clock)
    replace(file, b"changed")
    clock.now += 1
    slow = threading.Thread(target=live.get)
    slow.start()
    assert reading.wait(PATIENCE)
    clock.now += 1
    assert live.get() == "first"
    go_on.set()
    slow.join(PATIENCE)
    assert live.get() == "second"


def test_unusable_files_are_refused_at_the_start(tmp_path: Path) -> None:
    def read() -> str:
        raise Unusable("setting: it is not there")

    with pytest.raises(Unusable, match="it is not there"):
        Live("setting", [tmp_path / "missing"], read)
