import contextlib
import hashlib
from pathlib import Path

import fsspec
import pytest
from trainer_kit import artifacts, storage


@pytest.fixture(params=["plain path", "file URI", "memory"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder that does not exist yet, on several kinds of storage."""
    places = {
        "plain path": str(tmp_path / "models" / "m"),
        "file URI": f"file://{tmp_path}/models/m/",
        "memory": f"memory://{tmp_path.name}/m",
    }
    return places[request.param]


def names_in(uri: str) -> list[str]:
    filesystem, folder = storage.locate(uri)
    if not filesystem.exists(folder):
        return []
    return sorted(Path(path).name for path in filesystem.ls(folder, detail=False))


def test_a_published_model_can_be_opened(uri: str) -> None:
    with artifacts.publishing(uri, {"job_id": "7"}) as folder:
        (folder / "model.pt").write_bytes(b"weights")
    assert names_in(uri) == ["manifest.json", "model.pt"]
    with artifacts.opened(uri) as artifact:
        assert (artifact.folder / "model.pt").read_bytes() == b"weights"
        assert artifact.manifest == {
            "job_id": "7",
            "files": {"model.pt": {"sha256": hashlib.sha256(b"weights").hexdigest()}},
        }


def test_a_model_may_be_published_again(uri: str) -> None:
    for weights in (b"first", b"second"):
        with artifacts.publishing(uri, {}) as folder:
            (folder / "model.pt").write_bytes(weights)
    with artifacts.opened(uri) as artifact:
        assert (artifact.folder / "model.pt").read_bytes() == b"second"


def test_a_block_that_fails_publishes_nothing(uri: str) -> None:
    with contextlib.suppress(KeyError), artifacts.publishing(uri, {}) as folder:
        (folder / "model.pt").write_bytes(b"half")
        raise KeyError
    assert names_in(uri) == []


def test_a_failed_upload_leaves_earlier_files_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model"
    with artifacts.publishing(str(model), {}) as folder:
        (folder / "model.pt").write_bytes(b"first")
    before = {path.name: path.read_bytes() for path in model.iterdir()}

    filesystem = fsspec.filesystem("file")
    put_file = filesystem.put_file

    def disk_is_full_at_the_manifest(source: str, target: str) -> None:
        if "manifest" in target:
            raise OSError("no space left")
        put_file(source, target)

    monkeypatch.setattr(filesystem, "put_file", disk_is_full_at_the_manifest)
    with pytest.raises(OSError, match="no space left"), artifacts.publishing(str(model), {}) as folder:
        (folder / "model.pt").write_bytes(b"second")
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before


def test_the_manifest_is_the_last_file_to_appear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = list[str]()
    filesystem = fsspec.filesystem("file")
    move = filesystem.mv

    def watched_move(source: str, target: str) -> None:
        moved.append(Path(target).name)
        move(source, target)

    monkeypatch.setattr(filesystem, "mv", watched_move)
    with artifacts.publishing(str(tmp_path / "model"), {}) as folder:
        for name in ("z.json", "a.pt"):
            (folder / name).write_text("")
    assert moved == ["a.pt", "z.json", "manifest.json"]
