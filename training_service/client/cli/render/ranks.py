"""Lines of several processes in one stream."""

from training_service._generated.training_service_pb2 import GetTrainingLogsResponse


class RankPrefixes:
    """Puts its rank before every line."""

    def __init__(self) -> None:
        self._unfinished: int | None = None

    def prefixed(self, chunk: GetTrainingLogsResponse) -> str:
        """The chunk's text. A line that another process's chunk cuts in two is ended there."""
        if not chunk.text:
            return ""
        prefix = f"[{chunk.rank}] "
        first = prefix if self._unfinished is None else f"\n{prefix}"
        if self._unfinished == chunk.rank:
            first = ""
        *lines, rest = chunk.text.split("\n")
        self._unfinished = chunk.rank if rest else None
        return first + f"\n{prefix}".join([*lines, rest] if rest else lines) + ("" if rest else "\n")
