"""The logs of pods, as records with the kubelet's times."""

import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime

from job_tracker.backends.kubernetes.api_errors import Invalid, NotFound, Unreachable
from job_tracker.backends.kubernetes.client import KubernetesClient
from job_tracker.backends.kubernetes.groups import Groups, PodGroup, has_started
from job_tracker.backends.kubernetes.labels import Manifest
from job_tracker.backends.kubernetes.options import CONTAINER
from job_tracker.backends.shared.engine_logs import EngineLogs, StreamRecords
from job_tracker.domain.errors import BackendUnavailable
from job_tracker.logs.records import BEGINNING
from job_tracker.logs.spool import FolderSpool
from job_tracker.logs.writing import parts_of

_LONGEST_LINE = 64 * 1024
_TIME = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")
# The kubelet appends this message to a followed log when the container is removed.
_KUBELET_MESSAGE = re.compile(rb"rpc error: code = \w+ desc = [^\n]*container[^\n]*\Z")
# The kubelet's whole answer, with status 200, if it has removed the container.
_REMOVED = re.compile(
    rb"(?:unable to retrieve container logs for |failed to try resolving symlinks in path )[^\n]*\Z"
)


class PodLogs(EngineLogs[PodGroup, Manifest]):
    """See EngineLogs."""

    unreachable = Unreachable
    gone = (NotFound, Invalid)
    retried = (Unreachable, Invalid)
    # This pause is long, because a node may be unable to serve logs for hours. In this time, the stream of
    # each master on the node is opened again and again.
    longest_pause = 300.0

    def __init__(self, client: KubernetesClient, groups: Groups, spool: FolderSpool) -> None:
        super().__init__(groups, spool)
        self._client = client

    def _started(self, group: PodGroup, rank: int) -> Manifest | None:
        pod = group.pods.get(rank)
        return pod if pod is not None and has_started(pod) else None

    def _is_gone(self, error: BackendUnavailable, *, had_ended: bool, gave_up: bool) -> bool:
        # The kubelet answers with various errors once the container of an ended pod is removed.
        kinds = (NotFound, *((Invalid,) if had_ended else ()), *((Unreachable,) if gave_up else ()))
        return isinstance(error, kinds)

    def _is_left_to_stop(self, group: PodGroup) -> bool:
        return group.stopping

    async def _stream(
        self, instance: Manifest, after: bytes, silence: float, *, follow: bool, tail_lines: int | None
    ) -> AsyncGenerator[bytes, None]:
        records = _PodRecords(after)
        query = [("container", CONTAINER), ("timestamps", "true")]
        # The API accepts whole seconds only. Repeated lines are recognized by their times.
        query += [("sinceTime", f"{after[:19].decode()}Z")] if after else []
        query += [("follow", "true")] if follow else []
        query += [("tailLines", str(tail_lines))] if tail_lines is not None else []
        async with aclosing(
            self._client.logs(instance["metadata"]["name"], query, silence=silence)
        ) as pieces:
            async for piece in _whole_lines(pieces):
                if made := records.made(piece):
                    yield made


async def _whole_lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the same bytes in other pieces, which end where a line ends.

    Only the last piece, and pieces of long lines, may end elsewhere.
    """
    rest = b""
    async for piece in pieces:
        rest += piece
        end = rest.rfind(b"\n") + 1 or (len(rest) if len(rest) >= _LONGEST_LINE else 0)
        if end:
            yield rest[:end]
            rest = rest[end:]
    if rest:
        yield rest


class _PodRecords(StreamRecords):
    """See StreamRecords. Lines may come in several pieces, with times in several formats."""

    def __init__(self, after: bytes) -> None:
        super().__init__(after)
        self._is_cut = False

    def made(self, piece: bytes) -> bytes:
        """Return the records of the new lines in a piece.

        A line without a time continues a cut line, or is a message of the kubelet, which is left out. Raises
        NotFound if the message says that there is no log any longer.
        """
        return b"".join([self._made(line) for line in re.findall(rb"[^\n]*\n|[^\n]+", piece)])

    def _made(self, line: bytes) -> bytes:
        at = _TIME.match(line)
        if at is None and not self._is_cut and _REMOVED.match(line):
            raise NotFound(0, "NotFound", "the log was removed with its container")
        is_wanted = self._is_cut if at is None else self.is_new(_utc(at))
        if not is_wanted:
            return b""
        printed = _KUBELET_MESSAGE.sub(b"", line[at.end() :]) if at else line
        time = _utc(at) if at else BEGINNING
        is_whole = printed.endswith(b"\n")
        self._is_cut = not is_whole
        *parts, end = parts_of(printed.removesuffix(b"\n"))
        made = [self.record(time, b"P", part) for part in parts]
        if is_whole or end:
            made.append(self.record(time, b"F" if is_whole else b"P", end))
        return b"".join(made)


def _utc(at: re.Match[bytes]) -> bytes:
    """Return the time of a line as the time of a record: in UTC, with nine decimals."""
    second, fraction, zone = at.groups()
    if zone != b"Z":
        moment = datetime.fromisoformat((second + zone).decode()).astimezone(UTC)
        second = moment.strftime("%Y-%m-%dT%H:%M:%S").encode()
    return b"%b.%bZ" % (second, (fraction or b"").ljust(9, b"0"))
