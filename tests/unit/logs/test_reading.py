"""Log files are read in whole lines and bounded pieces, from wherever the last lines begin."""

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_tracker.backends.log_files import read, tail

PIECE = 64 * 1024


async def pieces(path: Path, tail_lines: int | None = None) -> list[str]:
    return [piece async for piece in read(path, tail_lines=tail_lines, is_growing=lambda: False)]


@pytest.mark.parametrize("ending", ["", "\n"])
@pytest.mark.parametrize("lines", [0, 1, 2, 3, 4, 100])
async def test_the_last_lines_are_the_last_lines(tmp_path: Path, lines: int, ending: str) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntwo\n\nfour" + ending)
    expected = ["one\n", "two\n", "\n", "four" + ending][-lines:] if lines else []
    assert "".join(await pieces(path, lines)) == "".join(expected)


@given(st.lists(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\r")), max_size=30))
def test_any_text_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    path = tmp_path_factory.mktemp("any") / "log"
    text = "\n".join(lines)
    path.write_bytes(text.encode())
    assert "".join(asyncio.run(pieces(path))) == text


async def test_pieces_end_with_lines_and_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("a line of some length\n" * 20_000)
    found = await pieces(path)
    assert len(found) > 1
    assert all(piece.endswith("\n") and len(piece) <= PIECE for piece in found)
    assert "".join(found) == path.read_text()
    assert "".join(await pieces(path, 15_000)) == "a line of some length\n" * 15_000


async def test_a_line_without_end_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("x" * (3 * PIECE + 1))
    assert [len(piece) for piece in await pieces(path)] == [PIECE] * 3 + [1]


async def test_bytes_that_are_no_text_become_replacement_characters(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"fine\n\xff\xfe\n")
    assert await pieces(path) == ["fine\n\ufffd\ufffd\n"]


async def test_what_is_written_before_the_end_is_read_even_if_nobody_looked(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("first\n")
    growing = True
    reading = read(path, tail_lines=None, is_growing=lambda: growing)
    assert await anext(reading) == "first\n"
    with path.open("a") as file:
        file.write("half")
        file.flush()
        waiting = asyncio.ensure_future(anext(reading))
        await asyncio.sleep(0)
        file.write(" and half\nlast words")
    growing = False
    assert await waiting == "half and half\n"
    assert [piece async for piece in reading] == ["last words"]


def test_the_tail_for_a_diagnosis_is_short_and_never_fails(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert tail(path, 5) == ""
    path.write_text("\n".join(str(number) for number in range(100)))
    assert tail(path, 2) == "98\n99"
    path.write_bytes(os.urandom(100_000))
    assert len(tail(path, 5).encode(errors="replace")) <= 4096 * 3
