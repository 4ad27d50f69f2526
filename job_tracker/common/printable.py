"""Text of others on one line, so that it moves no cursor and fakes no record."""


def printable(text: str) -> str:
    r"""The text with every character that has no picture escaped: a line break becomes \n, ESC \x1b."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def quoted(text: str) -> str:
    """The text as a message quotes it: escaped, so that it stays on its line, and not without end."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
