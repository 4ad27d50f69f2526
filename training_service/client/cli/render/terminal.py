"""Makes the output of jobs safe for a terminal.

A job's log may contain sequences that a terminal obeys. They can change its title or clipboard, move the
cursor, hide text, or make the terminal type an answer. Rich and Click remove only some of them.
"""

import re

_STRING_BY_ESCAPE = "P]X^_"  # after ESC, each of these begins a control string: DCS, OSC, SOS, PM, APC
_STRING = "\x90\x9d\x98\x9e\x9f"  # the same beginnings as single characters (C1)

# Text that is kept. It has no control characters (DEL, C1, and C0 except tab and line feed), and no
# characters that change the direction of text.
_PLAIN = re.compile("[^\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]+")
_CSI_PARAMETERS = re.compile("[ -?]*")
_ESCAPE_INTERMEDIATES = re.compile("[ -/]*")
# A control string ends at BEL, CAN, SUB or ST. It also ends at a line break, since an unterminated string
# would hide the rest of the log.
_END_OF_STRING = re.compile("[\x07\x18\x1a\x9c\x1b\n\r]")


class TerminalText:
    """Removes terminal sequences and control characters from one stream of text, piece by piece.

    Characters that change the direction of text are removed, too. A sequence may span pieces. Line breaks and
    tabs stay. A carriage return, with which progress bars overwrite their line, becomes a line break, so a
    job cannot overwrite text that others have printed.
    """

    def __init__(self) -> None:
        self._state = self._in_text
        self._kept: list[str] = []
        self._line_is_empty = True
        self._broke_at_return = False

    def cleaned(self, piece: str) -> str:
        """Return the next piece of the text without terminal sequences and control characters."""
        position = 0
        self._kept.clear()
        while position < len(piece):
            position = self._state(piece, position)
        return "".join(self._kept)

    # Each state consumes text from `position` and returns the position after it.

    def _in_text(self, piece: str, position: int) -> int:
        if plain := _PLAIN.match(piece, position):
            self._keep(plain.group())
            return plain.end()
        match piece[position]:
            case "\r":
                if not self._line_is_empty:
                    self._keep("\n")
                    self._broke_at_return = True
            case "\x1b":
                self._state = self._after_escape
            case "\x9b":
                self._state = self._in_csi
            case character if character in _STRING:
                self._state = self._in_string
        return position + 1

    def _after_escape(self, piece: str, position: int) -> int:
        character = piece[position]
        if character == "[":
            self._state = self._in_csi
        elif character in _STRING_BY_ESCAPE:
            self._state = self._in_string
        else:
            self._state = self._before_final
            return position
        return position + 1

    def _before_final(self, piece: str, position: int) -> int:
        """Consume the rest of an escape sequence: intermediate characters such as `(` and a final one."""
        return self._up_to_final(_ESCAPE_INTERMEDIATES, "0", piece, position)

    def _in_csi(self, piece: str, position: int) -> int:
        return self._up_to_final(_CSI_PARAMETERS, "@", piece, position)

    def _up_to_final(self, middle: re.Pattern[str], first: str, piece: str, position: int) -> int:
        found = middle.match(piece, position)
        position = found.end() if found else position
        if position == len(piece):
            return position
        self._state = self._in_text
        # A final character ends the sequence. Any other character aborts the sequence, and is not part of it.
        return position + 1 if first <= piece[position] <= "~" else position

    def _in_string(self, piece: str, position: int) -> int:
        end = _END_OF_STRING.search(piece, position)
        if end is None:
            return len(piece)
        self._state = self._in_text
        # ST may be ESC \, which is handled as another sequence.
        return end.start() if end.group() in "\x1b\n\r" else end.end()

    def _keep(self, text: str) -> None:
        if self._broke_at_return and text.startswith("\n"):
            text = text[1:]  # \r\n is a single line break
        self._broke_at_return = False
        if text:
            self._kept.append(text)
            self._line_is_empty = text.endswith("\n")
