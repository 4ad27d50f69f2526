"""Lines of several ranks in one stream."""


class RankPrefixes:
    """Prefixes every line with its rank."""

    def __init__(self) -> None:
        self._unfinished: int | None = None

    def prefixed(self, rank: int, text: str) -> str:
        """Return the next output of a rank with the prefix at the start of each line.

        If the previous output was an incomplete line of another rank, a line break comes first.
        """
        if not text:
            return ""
        prefix = f"[{rank}] "
        first = prefix if self._unfinished is None else f"\n{prefix}"
        if self._unfinished == rank:
            first = ""
        *lines, rest = text.split("\n")
        self._unfinished = rank if rest else None
        return first + f"\n{prefix}".join([*lines, rest] if rest else lines) + ("" if rest else "\n")
