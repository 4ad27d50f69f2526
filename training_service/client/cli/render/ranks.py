"""Lines of several processes in one stream."""


class RankPrefixes:
    """Puts its rank before every line."""

    def __init__(self) -> None:
        self._unfinished: int | None = None

    def prefixed(self, rank: int, text: str) -> str:
        """What a rank printed next. A line that another rank's text cuts in two is ended there."""
        if not text:
            return ""
        prefix = f"[{rank}] "
        first = prefix if self._unfinished is None else f"\n{prefix}"
        if self._unfinished == rank:
            first = ""
        *lines, rest = text.split("\n")
        self._unfinished = rank if rest else None
        return first + f"\n{prefix}".join([*lines, rest] if rest else lines) + ("" if rest else "\n")
