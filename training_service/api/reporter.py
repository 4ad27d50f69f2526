"""The servicer of training.TrainingReporter."""

# The interceptor gives handlers a Call in place of gRPC's context.
# mypy: disable-error-code="override"

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp

from job_tracker.common import log_context
from job_tracker.domain.audit import EventObserver, ignore_event
from job_tracker.domain.errors import InvalidField, NotAllowed, TreeDamaged
from job_tracker.reports import Report, ReportBuffer, ReportTokens
from job_tracker.reports.buffer import Attempt
from job_tracker.reports.ranks import RankReport, rank_report, seconds_of
from job_tracker.reports.report import COUNTS, ReportReader
from job_tracker.trees.contents import read_in_threads
from job_tracker.trees.store import TreeStore
from training_service._generated import training_reporter_pb2 as pb
from training_service._generated.training_reporter_pb2_grpc import TrainingReporterServicer
from training_service.api.caller import Call, Metadata
from training_service.api.limits import CallLimits
from training_service.api.sending import Places
from training_service.auth.authenticator import refusal_of

_SCHEME = "bearer "
_SHORTEST_PAUSE = 1.0
_FETCHES, _FETCHES_OF_ONE, _FETCH_SECONDS = 16, 4, 600.0  # a running fetch takes up to 3 MiB of memory
_REPORTS_A_SECOND = 500  # the most that one replica takes; the more reporters, the longer each pauses


class ReporterServicer(TrainingReporterServicer):
    """Converts messages and calls the domain. The interceptor handles errors."""

    def __init__(
        self,
        tokens: ReportTokens,
        buffer: ReportBuffer,
        limits: CallLimits | None = None,
        note: EventObserver = ignore_event,
        trees: TreeStore | None = None,
    ) -> None:
        """`note` gets an audit event for each call whose token is refused; `trees` has the files of
        programs.
        """
        self._limits = limits or CallLimits()
        self._tokens = tokens
        self._buffer = buffer
        self._note = note
        self._trees = trees
        self._fetches = Places(_FETCHES, _FETCHES_OF_ONE, _FETCH_SECONDS)

    async def Report(self, request: pb.ReportRequest, call: Call) -> pb.ReportResponse:
        attempt = await self._attempt_of(call, request.rank.rank)
        board = self._buffer.ranks
        is_known = request.HasField("rank") and 0 <= request.rank.rank < board.size_of(attempt)
        answer = pb.ReportResponse()
        if _has_content(request) or not request.HasField("rank"):
            report = replace(report_of(request), rank=request.rank.rank if is_known else None)
            answer.problems.extend(report.problems)
            await self._buffer.take(attempt, report, by_call=True, ago=seconds_of(request.rank.moved_ago))
        else:
            await self._buffer.check(attempt)
        seconds = max(_SHORTEST_PAUSE, (self._buffer.reporters + board.processes) / _REPORTS_A_SECOND)
        if request.HasField("rank"):
            orders = board.take(attempt, _rank_report(request.rank))
            answer.wants_stacks, answer.reconnect = orders.wants_stacks, orders.reconnect
            least = 0.0 if seconds <= _SHORTEST_PAUSE else seconds
            answer.quiet_pause.FromNanoseconds(int(1e9 * max(least, orders.pause)))
        answer.pause.FromNanoseconds(int(1e9 * seconds))
        return answer

    async def FetchProgram(
        self,
        request: pb.FetchProgramRequest,
        call: Call,
    ) -> AsyncGenerator[pb.FetchProgramResponse, None]:
        attempt = await self._attempt_of(call)
        job = await self._buffer.live_job(attempt)
        if job.spec.program is None:
            raise InvalidField("token", f"job {job.id} runs no uploaded program, so it has no files")
        if self._trees is None:
            raise TreeDamaged("this service keeps no uploaded files")
        with await self._fetches.take(replace(call.caller, name=f"job {job.id}")):
            trees, tree = self._trees.of(job.spec.project), job.spec.program.tree
            stream = trees.stream(tree, manifest_only=request.manifest_only)
            async with aclosing(read_in_threads(stream)) as pieces:
                async for piece in pieces:
                    yield pb.FetchProgramResponse(content=piece)

    async def _attempt_of(self, call: Call, process: int = 0) -> Attempt:
        """Return the attempt to which the call's token belongs.

        The call counts toward the rate limit of process number `process` of the attempt, or of process 0 if
        the attempt has no such process. Raises NotAllowed if the token is missing or not valid,
        RateExceeded if the process makes too many calls, and StoreUnavailable if the store is needed to check
        the token and does not answer.
        """
        try:
            attempt = await self._tokens.read(_token_of(call.metadata))
        except NotAllowed as error:
            self._note(refusal_of(error, call.caller.address, datetime.now(UTC)))
            raise
        exists = 0 < process < self._buffer.ranks.size_of(attempt)
        self._limits.check_report(*attempt, process if exists else 0)
        log_context.subject.set(log_context.Subject(*attempt))  # each call has a context of its own
        return attempt


def _rank_report(message: pb.RankProgress) -> RankReport:
    return rank_report(
        message, has_step=message.HasField("step"), has_still_for=message.HasField("still_for")
    )


def report_of(message: pb.ReportRequest) -> Report:
    """Return the report with the valid values of a message, and with the problems of the invalid ones."""
    reader = ReportReader(datetime.now(UTC))
    reader.counts({name: getattr(message, name) for name in COUNTS if message.HasField(name)})  # type: ignore[arg-type]
    for metric in message.metrics:
        reader.point(metric.name, metric.value, metric.step, _moment(metric.at))
    for artifact in message.artifacts:
        reader.artifact(
            {
                "name": artifact.name,
                "uri": artifact.uri,
                "kind": artifact.kind,
                "size": artifact.size,
                "sha256": artifact.sha256,
            }
        )
    return reader.report()


def _has_content(message: pb.ReportRequest) -> bool:
    """Return whether the message has anything besides `rank`, the position of its process in the training."""
    return bool(message.metrics or message.artifacts or any(message.HasField(name) for name in COUNTS))  # type: ignore[arg-type]


def _moment(at: Timestamp) -> datetime | None:
    """Return the time, or None if it is absent or invalid."""
    try:
        return at.ToDatetime(UTC) if at.seconds > 0 else None
    except (ValueError, OverflowError):
        return None


def _token_of(metadata: Metadata) -> str:
    for key, value in metadata:
        if key == "authorization" and isinstance(value, str) and value.lower().startswith(_SCHEME):
            return value[len(_SCHEME) :].strip()
    raise NotAllowed(
        "the report token is missing; send the metadata 'authorization: Bearer TOKEN' with the value of "
        "REPORT_TOKEN"
    )
