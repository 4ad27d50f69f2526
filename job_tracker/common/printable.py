"""Makes foreign text safe to print: on one line, without control characters."""


def printable(text: str) -> str:
    r"""Escape every character that is not printable: a line break becomes \n, ESC becomes \x1b."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def quoted(text: str) -> str:
    """Quote a text for a message: escaped to stay on one line, and shortened to 60 characters."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
