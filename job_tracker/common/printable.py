"""Makes untrusted text safe to print: on one line, without control characters."""

import re

_SECRET = re.compile(r"(?<=tst_[a-z0-9]{8}_)[A-Za-z0-9_-]{20,}", re.ASCII)
"""The secret in the text of a token, or the beginning of the secret if the text is cut."""


def printable(text: str) -> str:
    r"""Escape every character that is not printable: a line break becomes \n, ESC becomes \x1b."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def without_secrets(text: str) -> str:
    """Shorten the tokens in a text to their ids: a caller may have put a token into a wrong field."""
    return _SECRET.sub("…", text)


def quoted(text: str) -> str:
    """Return a text in quotes for a message: cut to 60 characters, and then escaped to stay on one line.

    The secret of a token is left out.
    """
    text = without_secrets(text)
    return repr(text if len(text) <= 60 else text[:57] + "...")
