import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from intent_classification import predict

from tests.support.trainers.launcher import Trained


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run the command with these arguments and return its output."""

    def run(*arguments: str) -> str:
        monkeypatch.setattr("sys.argv", ["predict", *arguments])
        predict.main()
        return capsys.readouterr().out

    return run


@pytest.fixture
def model(trained: Callable[[int], Trained], tmp_path: Path) -> Path:
    """A copy of a trained model, which a test may damage."""
    return Path(shutil.copytree(trained(1).model, tmp_path / "model"))


def test_a_saved_model_classifies_a_question(ask: Callable[..., str], model: Path) -> None:
    answer = ask("--model", str(model), "where is the eiffel tower ?")
    assert re.fullmatch(r"LOC \(probability (0\.9\d\d|1\.000)\)\n", answer)


def test_a_model_of_a_group_is_read_by_one_process(
    ask: Callable[..., str], trained: Callable[[int], Trained]
) -> None:
    answer = json.loads(ask("--model", str(trained(3).model), "--json", "how many people live in rome ?"))
    assert answer["label"] == "NUM"
    assert 0.8 < answer["probability"] <= 1


@pytest.mark.parametrize("text", ["", "xyzzy", "?" * 100_000])
def test_any_text_has_a_class(ask: Callable[..., str], model: Path, text: str) -> None:
    assert json.loads(ask("--model", str(model), "--json", text))["label"] in {
        "ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM",
    }  # fmt: skip


def no_folder(model: Path) -> None:
    shutil.rmtree(model)


def no_manifest(model: Path) -> None:
    (model / "manifest.json").unlink()


def no_json(model: Path) -> None:
    (model / "manifest.json").write_text("{")


def no_files_listed(model: Path) -> None:
    (model / "manifest.json").write_text('{"model": "other"}')


def no_weights(model: Path) -> None:
    (model / "model.pt").unlink()


def half_the_weights(model: Path) -> None:
    whole = (model / "model.pt").read_bytes()
    (model / "model.pt").write_bytes(whole[: len(whole) // 2])


def files_from_elsewhere(model: Path) -> None:
    (model / "manifest.json").write_text('{"files": {"../secret": {"sha256": ""}}}')


def another_kind_of_model(model: Path) -> None:
    (model / "manifest.json").write_text('{"files": {}}')


def weights_of_another_model(model: Path) -> None:
    torch.save({"bias": torch.zeros(3)}, model / "model.pt")
    list_again(model, "model.pt")


def labels_of_another_program(model: Path) -> None:
    (model / "labels.json").write_text("ABBR, DESC")
    list_again(model, "labels.json")


def list_again(model: Path, name: str) -> None:
    """Write the hash of the file into the manifest."""
    manifest = json.loads((model / "manifest.json").read_text())
    manifest["files"][name]["sha256"] = hashlib.sha256((model / name).read_bytes()).hexdigest()
    (model / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (no_folder, "is not a model: it has no manifest.json"),
        (no_manifest, "is not a model: it has no manifest.json"),
        (no_json, "is not a model: its manifest.json does not list its files"),
        (no_files_listed, "is not a model: its manifest.json does not list its files"),
        (no_weights, "is not a complete model: model.pt is missing"),
        (
            half_the_weights,
            "is not a complete model: the SHA-256 of model.pt is not the one in manifest.json",
        ),
        (files_from_elsewhere, "is not a model: its manifest.json names files outside the folder"),
        (another_kind_of_model, "this is not a text classifier: it has no model.pt"),
        (weights_of_another_model, "this is not a text classifier: it is damaged or another model"),
        (
            labels_of_another_program,
            "this is not a text classifier: its vocabulary or its labels are not JSON",
        ),
    ],
)
def test_an_incomplete_model_is_refused_in_one_line(
    ask: Callable[..., str], model: Path, spoil: Callable[[Path], None], complaint: str
) -> None:
    spoil(model)
    with pytest.raises(SystemExit) as refused:
        ask("--model", str(model), "where is rome ?")
    assert str(refused.value).startswith("error: ")
    assert str(refused.value).endswith(complaint)
    assert "\n" not in str(refused.value)


def test_an_unknown_kind_of_storage_is_reported_in_one_line(ask: Callable[..., str]) -> None:
    with pytest.raises(SystemExit, match=r"^error: cannot use moon://model: Protocol not known: moon$"):
        ask("--model", "moon://model", "where is rome ?")
