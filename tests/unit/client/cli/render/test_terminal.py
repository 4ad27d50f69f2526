"""The output of jobs is safe for a terminal, however it is split into pieces."""

import itertools
import random

import pytest

from training_service.client.cli.render.terminal import TerminalText

LINES = [
    ("colours go", "\x1b[1;38;5;196mred\x1b[0m", "red"),
    ("cursor movements and erasures go", "a\x1b[2K\x1b[1A\x1b[?25lb", "ab"),
    ("a title that BEL ends goes", "a\x1b]0;title\x07b", "ab"),
    ("a title that ST ends goes", "a\x1b]0;title\x1b\\b", "ab"),
    ("links keep their text", "\x1b]8;;http://example.com\x1b\\link\x1b]8;;\x1b\\", "link"),
    ("writing to the clipboard goes", "a\x1b]52;c;cm0gLXJmIC8=\x07b", "ab"),
    ("a device control string goes", "a\x1bP$q q\x1b\\b", "ab"),
    ("other strings go", "a\x1bXsos\x1b\\b\x1b^pm\x1b\\c\x1b_apc\x1b\\d", "abcd"),
    ("sequences that begin with a C1 character go", "a\x9b31mb\x9d0;title\x9cc\x90x\x9cd", "abcd"),
    ("two characters go", "a\x1bcb\x1b7c\x1b=d", "abcd"),
    ("character sets go", "a\x1b(0b\x1b#8c", "abc"),
    ("control characters go", "a\x00b\x07c\x08d\x0be\x0cf\x7fg\x85h", "abcdefgh"),
    ("an escape before an escape goes", "a\x1b\x1b[31mb", "ab"),
    ("a sequence within a sequence goes", "a\x1b[3\x1b[31mb", "ab"),
    ("characters that change the direction of text go", "a\u202egpj.exe\u202c\u2066b\u2069", "agpj.exeb"),
    ("an unterminated string ends with its line", "a\x1b]0;title\nb", "a\nb"),
    ("a sequence that a line break interrupts goes", "a\x1b[31\nb\x1b\nc", "a\nb\nc"),
    ("letters of all languages stay", "Füße 你好 😀 \u200d\xa0", "Füße 你好 😀 \u200d\xa0"),
    ("tabs and line breaks stay", "a\tb\n\n\nc", "a\tb\n\n\nc"),
    ("progress bars have a line for each state", "\r10%\r20%\r\x1b[K30%\n", "10%\n20%\n30%\n"),
    ("line ends of Windows are line ends", "a\r\n\r\nb\r\r\nc", "a\n\nb\nc"),
    ("a bar that clears its line ends it once", "90%\r\x1b[K\nend", "90%\nend"),
]


def cleaned(*pieces: str) -> str:
    text = TerminalText()
    return "".join(text.cleaned(piece) for piece in pieces)


@pytest.mark.parametrize(("printed", "shown"), [case[1:] for case in LINES], ids=[case[0] for case in LINES])
def test_a_terminal_gets_text_only(printed: str, shown: str) -> None:
    assert cleaned(printed) == shown
    assert cleaned(*printed) == shown, "one character per piece"
    for first, second in itertools.combinations(range(len(printed) + 1), 2):
        pieces = printed[:first], printed[first:second], printed[second:]
        assert cleaned(*pieces) == shown, pieces


def test_random_text_becomes_printable() -> None:
    chosen = random.Random(11)
    alphabet = "\x1b\x1b\x1b[]P(\\;01mA \n\r\t\x07\x18\x9b\x9d\x9c\x90\u202e"
    for _ in range(20_000):
        printed = "".join(chosen.choices(alphabet, k=12))
        shown = cleaned(printed[:5], printed[5:])
        assert all(c.isprintable() or c in "\n\t" for c in shown), printed
