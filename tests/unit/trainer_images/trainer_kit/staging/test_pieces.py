"""Files are divided into pieces of equal size, and never written outside of their folder."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainer_kit.errors import DataError
from trainer_kit.staging.pieces import LEAST, PIECE, File, make, piece_size, pieces_of, size_of


@given(st.lists(st.integers(0, 50), max_size=8), st.integers(1, 20))
def test_pieces_have_each_byte_once(sizes: list[int], most: int) -> None:
    files = [File(str(number), size) for number, size in enumerate(sizes)]
    pieces = pieces_of(files, most)
    places = [
        (name, at) for piece in pieces for name, start, size in piece for at in range(start, start + size)
    ]
    assert places == [(file.name, at) for file in files for at in range(file.size)]
    assert all(size_of(piece) == most for piece in pieces[:-1])
    assert all(0 < size_of(piece) <= most for piece in pieces)


def test_all_ranks_have_something_to_read_unless_there_is_little() -> None:
    assert len(pieces_of([File("a", 8 << 20)], piece_size(8 << 20, ranks=4))) == 16
    assert piece_size(10**12, ranks=4) == PIECE
    assert piece_size(1000, ranks=4) == LEAST


@pytest.mark.parametrize("name", ["/etc/cron.d/job", "a/../../file", ".."])
def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    (folder := tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match="is not below the dataset's folder"):
        make(folder, [File(name, 1)])
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]
