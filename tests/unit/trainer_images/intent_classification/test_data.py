import re
from pathlib import Path

import pytest
from intent_classification import data
from intent_classification.data import Example
from intent_classification.splits import Split, split_of
from trainer_kit.errors import DataError

LABELS = '"1","LOC"\n"2","NUM"\n'
EXAMPLES = '"where ?","1","train"\n"how many ?","2","validation"\n\n"how, and ""why"" ?","2","test"\n'


def write(folder: Path, examples: str | bytes = EXAMPLES, labels: str = LABELS) -> str:
    (folder / "labels.csv").write_text(labels)
    (folder / "examples.csv").write_bytes(examples if isinstance(examples, bytes) else examples.encode())
    return str(folder)


def test_a_data_set_is_read_with_its_splits(tmp_path: Path) -> None:
    dataset = data.load(write(tmp_path))
    assert dataset.labels == ("LOC", "NUM")
    assert dataset.examples == {
        Split.TRAIN: [Example("where ?", 0)],
        Split.VALIDATION: [Example("how many ?", 1)],
        Split.TEST: [Example('how, and "why" ?', 1)],
    }


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_a_folder_may_be_a_path_or_a_uri_and_end_in_a_slash(tmp_path: Path, prefix: str) -> None:
    assert data.load(f"{prefix}{write(tmp_path)}/").labels == ("LOC", "NUM")


def test_a_data_set_without_splits_is_split_by_its_texts(tmp_path: Path) -> None:
    texts = [f"question {number} ?" for number in range(100)]
    dataset = data.load(write(tmp_path, "".join(f'"{text}","1"\n' for text in texts)))
    for split, examples in dataset.examples.items():
        assert [text for text, _ in examples] == [text for text in texts if split_of(text) == split]


@pytest.mark.parametrize("missing", ["examples.csv", "labels.csv"])
def test_a_missing_file_is_named(tmp_path: Path, missing: str) -> None:
    uri = write(tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(DataError, match=f"^{re.escape(uri)}/{missing} does not exist$"):
        data.load(uri)


@pytest.mark.parametrize(
    ("examples", "complaint"),
    [
        (EXAMPLES + '"alone"\n', "line 5: expected a text, a label id and perhaps a split, found 1 columns"),
        (
            EXAMPLES + '"a","1","test","b"\n',
            "line 5: expected a text, a label id and perhaps a split, found 4 columns",
        ),
        (EXAMPLES + '"a","3","test"\n', "line 5: labels.csv has no label '3'"),
        (EXAMPLES + '"a","1","exam"\n', "line 5: unknown split 'exam'. Allowed: train, validation, test"),
        (EXAMPLES + '"a"b,"1"\n', "line 5: ',' expected after '\"'"),
        (EXAMPLES + '"a', "line 5: unexpected end of data"),
        (b'"caf\xe9","1"\n', "is not UTF-8 text: "),
        ("", "the split 'train' has no examples"),
        ('"where ?","1","train"\n', "the split 'validation' has no examples"),
    ],
)
def test_a_malformed_row_is_refused_with_its_file_and_line(
    tmp_path: Path, examples: str | bytes, complaint: str
) -> None:
    uri = write(tmp_path, examples)
    with pytest.raises(DataError) as refused:
        data.load(uri)
    assert str(refused.value).startswith(f"{uri}/examples.csv")
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("labels", "complaint"),
    [
        ('"1"\n', "line 1: expected an id and a name, found 1 columns"),
        ('"1","a"\n"1","b"\n', "line 2: the id '1' is already on an earlier line"),
    ],
)
def test_a_malformed_label_is_refused(tmp_path: Path, labels: str, complaint: str) -> None:
    with pytest.raises(DataError, match=f"labels.csv: {complaint}"):
        data.load(write(tmp_path, labels=labels))
