"""Any metadata is answered or refused cleanly, and no caller can pass for another one."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from job_tracker.access import tokens
from tests.support.access import Entry, Sent, bearer, failure
from tests.support.api_service import Serve, Service, metadata
from tests.support.fuzzing import NO_LIMITS, fuzzed
from tests.support.http2 import call_with
from tests.support.patience import PATIENCE
from training_service._generated import access_service_pb2 as apb
from training_service._generated import training_reporter_pb2 as rpb
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_reporter_pb2_grpc import TrainingReporterStub
from training_service.log_setup import GRPC_LOGGER, quotes_no_metadata

CODE = grpc.StatusCode
Pairs = Sequence[tuple[str, str | bytes]]
ALLOWED = {
    *(CODE.OK, CODE.UNAUTHENTICATED, CODE.PERMISSION_DENIED, CODE.INVALID_ARGUMENT, CODE.NOT_FOUND),
    CODE.RESOURCE_EXHAUSTED,  # metadata that is too large
}
UNKNOWN = tokens.new_token().text

PRINTABLE = st.characters(min_codepoint=0x20, max_codepoint=0x7E)
TEXTS = st.one_of(
    st.text(PRINTABLE, max_size=60),
    st.sampled_from(
        ["", " ", "vision", "speech", "VISION", "*", "../x", "default,vision", UNKNOWN, "x" * 5000]
    ),
    st.sampled_from(
        ["Bearer", "Bearer ", "Bearer *", f"Bearer {UNKNOWN}", "Basic eDp5", "Bearer 1.1." + "x" * 43]
    ),
)
NAMES = st.sampled_from(
    [
        *(
            "authorization",
            "x-project",
            "x-request-id",
            "x-forwarded-for",
            "x-submitted-by",
            "x-role",
            "host",
        ),
        *("cookie", "x-forwarded-client-cert", "x-spiffe-id", "proxy-authorization"),
    ]
)
BINARY_NAMES = st.sampled_from(["authorization-bin", "x-project-bin", "x-request-id-bin", "x-bin"])
PAIRS = st.lists(st.tuples(NAMES, TEXTS) | st.tuples(BINARY_NAMES, st.binary(max_size=200)), max_size=6)
METHODS = (
    "WhoAmI",
    "ListProjects",
    "GetTrainingStatus",
    "WatchTraining",
    "ListTrainingJobs",
    "Train",
    "Report",
)

RAW_NAMES = NAMES.map(str.encode) | st.sampled_from(
    [b"authorization-bin", b"grpc-accept-encoding", b"X", b"x y"]
)
RAW_VALUES = st.one_of(
    st.binary(max_size=100),
    st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.sampled_from(
        [b"Bearer \xff\xfe", b"Bearer tst_\0", b"vision\0", b"\r\nauthorization: x", b"x" * 4000]
    ),
)
RAW_PAIRS = st.lists(st.tuples(RAW_NAMES, RAW_VALUES), min_size=1, max_size=4)


class Gate:
    """A server that asks for tokens, with Alice, who has a role in `vision`, and a job in `speech`."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.entry = Entry(service)
        self.alice: Sent = []
        self.job = 0

    async def fill(self) -> None:
        """Make the projects, the token and the job."""
        await self.entry.project("vision", alice="submitter")
        await self.entry.project("speech")
        self.alice = bearer((await self.entry.token("alice")).text)
        sent = [*self.entry.operator, ("x-project", "speech")]
        self.job = (await self.service.stub.Train(pb.TrainRequest(metadata=metadata()), metadata=sent)).job_id

    async def answer(self, method: str, sent: Any) -> tuple[grpc.StatusCode, str]:
        """Return the code and the message of a call about the job, or about the caller."""
        stub, request = {
            "WhoAmI": (self.entry.stub, apb.WhoAmIRequest()),
            "ListProjects": (self.entry.stub, apb.ListProjectsRequest()),
            "GetTrainingStatus": (self.service.stub, pb.GetTrainingStatusRequest(job_id=self.job)),
            "WatchTraining": (self.service.stub, pb.WatchTrainingRequest(job_id=self.job)),
            "ListTrainingJobs": (self.service.stub, pb.ListTrainingJobsRequest()),
            "Train": (self.service.stub, pb.TrainRequest()),
            "Report": (TrainingReporterStub(self.service.channel), rpb.ReportRequest(step=1)),
        }[method]
        return await failure(getattr(stub, method)(request, metadata=sent, timeout=PATIENCE))

    async def is_well(self) -> None:
        """Check that Alice is Alice, and sees no job."""
        who = await self.entry.stub.WhoAmI(apb.WhoAmIRequest(), metadata=self.alice)
        assert (who.name, dict(who.roles)) == ("alice", {"vision": apb.submitter})
        found = await self.service.stub.ListTrainingJobs(pb.ListTrainingJobsRequest(), metadata=self.alice)
        assert not found.jobs


@pytest.fixture
async def gate(serve: Serve) -> AsyncIterator[Gate]:
    made = Gate(await serve(tracked=False, auth={"loopback": "token"}, limits=NO_LIMITS))
    await made.fill()
    grpc_logger = logging.getLogger(GRPC_LOGGER)
    grpc_logger.addFilter(quotes_no_metadata)  # as the program does
    yield made
    grpc_logger.removeFilter(quotes_no_metadata)


@fuzzed(60)
@given(pairs=PAIRS, method=st.sampled_from(METHODS))
@example(pairs=[("authorization-bin", b"Bearer x")], method="WhoAmI")
@example(pairs=[("x-project", "vision")] * 3, method="ListTrainingJobs")
@example(pairs=[("x-request-id", "x" * 4000)], method="Report")
@example(pairs=[("authorization", "Bearer " + "x" * 7000)], method="Train")
async def test_no_metadata_without_a_token_makes_a_caller(
    gate: Gate, caplog: pytest.LogCaptureFixture, pairs: Pairs, method: str
) -> None:
    caplog.set_level(logging.DEBUG)
    code, details = await gate.answer(method, pairs)
    assert code in (CODE.UNAUTHENTICATED, CODE.RESOURCE_EXHAUSTED), (code, details)
    assert details.isprintable()
    assert UNKNOWN[13:] not in details + caplog.text
    assert "Traceback" not in caplog.text
    await gate.is_well()


@fuzzed(60)
@given(pairs=PAIRS, method=st.sampled_from(METHODS))
@example(pairs=[("x-project", "speech")], method="ListTrainingJobs")
@example(pairs=[("x-project", "*")], method="ListTrainingJobs")
@example(pairs=[("x-role", "operator"), ("x-submitted-by", "operator")], method="GetTrainingStatus")
async def test_no_metadata_besides_the_token_gives_another_name_or_role(
    gate: Gate, caplog: pytest.LogCaptureFixture, pairs: Pairs, method: str
) -> None:
    caplog.set_level(logging.DEBUG)
    code, details = await gate.answer(method, [*pairs[:3], *gate.alice, *pairs[3:]])
    assert code in ALLOWED, (code, details)
    assert details.isprintable()
    if method in ("GetTrainingStatus", "WatchTraining", "Train", "Report"):
        assert code is not CODE.OK
    if any(name == "authorization" for name, _ in pairs) and method != "Report":
        assert code in (CODE.UNAUTHENTICATED, CODE.RESOURCE_EXHAUSTED)
    assert gate.alice[0][1][20:] not in details + caplog.text
    assert "Traceback" not in caplog.text
    await gate.is_well()


@fuzzed(30)
@given(pairs=RAW_PAIRS, method=st.sampled_from(["WhoAmI", "ListProjects"]))
@example(pairs=[(b"authorization", b"Bearer \xff")], method="WhoAmI")
@example(pairs=[(b"authorization", b"")], method="WhoAmI")
@example(pairs=[(b"x-project", "\u202e".encode())], method="WhoAmI")
async def test_bytes_that_no_client_sends_are_refused(
    gate: Gate, caplog: pytest.LogCaptureFixture, pairs: Sequence[tuple[bytes, bytes]], method: str
) -> None:
    caplog.set_level(logging.DEBUG)
    ended = gate.service.metrics.ended
    while not ended.empty():
        ended.get_nowait()
    await asyncio.to_thread(call_with, gate.service.address, f"/training.AccessService/{method}", pairs)
    await gate.is_well()
    codes = [ended.get_nowait()[1] for _ in range(ended.qsize())]
    assert codes[-2:] == [CODE.OK, CODE.OK], "those of Alice"
    assert {*codes[:-2]} <= {CODE.UNAUTHENTICATED}
    assert "Traceback" not in caplog.text
