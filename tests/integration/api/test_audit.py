"""The audit at a real server: the events that callers may read, and the events of a call."""

from datetime import timedelta
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from job_tracker.access import tokens
from job_tracker.store.audit import AuditFilter
from tests.support.access import Entry, Sent, bearer, failure
from tests.support.api_service import Serve, Service, metadata
from training_service._generated import access_service_pb2 as apb
from training_service._generated import training_reporter_pb2 as rpb
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_reporter_pb2_grpc import TrainingReporterStub


@pytest.fixture
async def service(serve: Serve) -> Service:
    return await serve(tracked=False, auth={"loopback": "token"})


@pytest.fixture
async def entry(service: Service) -> Entry:
    entry = Entry(service)
    await entry.project("vision")
    return entry


async def events(entry: Entry, **fields: Any) -> list[apb.AuditEvent]:
    """All events that match, as the operator reads them in pages of two."""
    found: list[apb.AuditEvent] = []
    request = apb.ListAuditEventsRequest(page_size=2, **fields)
    while True:
        page = await entry.stub.ListAuditEvents(request, metadata=entry.operator)
        found += page.events
        assert len(page.events) <= 2
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


async def noted(service: Service, entry: Entry, call: Any) -> apb.AuditEvent:
    """The one event that a refused call or a read leaves."""
    before = len(await service.store.events_after(0, 1000))
    await failure(call)
    await service.trail.flush()
    [found] = (await service.store.events_after(0, 1000))[before:]
    [shown] = [each for each in await events(entry) if each.id == found.id]
    return shown


async def test_a_change_leaves_who_when_where_and_in_which_call(service: Service, entry: Entry) -> None:
    made = await entry.token("ci", "vision", "submitter")
    sent: Sent = [*bearer(made.text), ("x-request-id", "my-request")]
    await service.stub.Train(pb.TrainRequest(metadata=metadata()), metadata=sent)
    newest = (await events(entry, project="vision"))[0]
    assert newest.at.ToMicroseconds() <= newest.id
    newest.ClearField("id")
    newest.ClearField("at")
    assert newest == apb.AuditEvent(
        outcome="done",
        action="submit",
        project="vision",
        target="job 1",
        detail="algorithm program",
        count=1,
        caller="vision/ci",
        means="token",
        token_id=made.token.id,
        address="ipv4:127.0.0.1",
        request_id="my-request",
    )


async def test_calls_without_a_valid_proof_leave_an_event_without_it(service: Service, entry: Entry) -> None:
    request = pb.ListTrainingJobsRequest()
    wrong = tokens.new_token().text
    event = await noted(service, entry, service.stub.ListTrainingJobs(request, metadata=bearer(wrong)))
    assert (event.outcome, event.action, event.caller) == ("denied", "authenticate", "")
    assert (event.address, event.detail) == ("ipv4:127.0.0.1", "the token is not valid here")
    assert wrong[4:12] not in str(event)

    made = await entry.token("ci", "vision", "viewer")
    await entry.stub.RevokeToken(apb.RevokeTokenRequest(id=made.token.id), metadata=entry.operator)
    event = await noted(service, entry, service.stub.ListTrainingJobs(request, metadata=bearer(made.text)))
    assert (event.caller, event.token_id) == ("vision/ci", made.token.id)
    assert event.detail.startswith(f"the token {made.token.id} was revoked at")


async def test_a_wrong_report_token_leaves_an_event(service: Service, entry: Entry) -> None:
    stub: Any = TrainingReporterStub(service.channel)
    for sent, detail in (
        ([], "the report token is missing"),
        (bearer("x"), "the report token is malformed"),
    ):
        event = await noted(service, entry, stub.Report(rpb.ReportRequest(), metadata=sent))
        assert (event.outcome, event.action, event.detail) == ("denied", "authenticate", detail)


async def test_a_question_about_a_hidden_job_is_an_event_of_its_project(
    service: Service, entry: Entry
) -> None:
    await entry.project("speech")
    operator = [*entry.operator, ("x-project", "speech")]
    await service.stub.Train(pb.TrainRequest(metadata=metadata()), metadata=operator)
    ada = bearer((await entry.token("ada", "vision", "admin")).text)
    request = pb.GetTrainingStatusRequest(job_id=1)
    event = await noted(service, entry, service.stub.GetTrainingStatus(request, metadata=ada))
    assert (event.outcome, event.action, event.project, event.target) == ("denied", "get", "speech", "job 1")
    asked = apb.ListAuditEventsRequest(project="vision")
    seen = await entry.stub.ListAuditEvents(asked, metadata=ada)
    assert {each.project for each in seen.events} == {"vision"}


async def test_events_are_selected_by_caller_and_time(service: Service, entry: Entry) -> None:
    ci = bearer((await entry.token("ci", "vision", "submitter")).text)
    for sent in (ci, [*entry.operator, ("x-project", "vision")], ci):
        await service.stub.Train(pb.TrainRequest(metadata=metadata()), metadata=sent)
    found = await events(entry, caller="vision/ci")
    assert [each.target for each in found] == ["job 3", "job 1"]
    [second] = await service.store.list_events(AuditFilter(caller="operator", project="vision"), limit=1)
    moment = Timestamp()
    moment.FromMicroseconds(second.id)
    assert [each.target for each in await events(entry, since=moment)] == ["job 3", "job 2"]
    assert (await events(entry, until=moment))[0].target == "job 1"
    moment.FromDatetime(second.at + timedelta(days=1))
    assert await events(entry, since=moment) == []


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"page_size": -1}, "page_size: -1 is not allowed; allowed: 0 to 1000"),
        ({"page_size": 1001}, "page_size: 1001 is not allowed; allowed: 0 to 1000"),
        ({"page_token": "-1"}, "page_token: '-1' is not a next_page_token of this call"),
        ({"page_token": "9" * 19}, "is not a next_page_token of this call"),
        ({"page_token": "١"}, "is not a next_page_token of this call"),
        ({"since": Timestamp(seconds=10**15)}, "since: '1000000000000000' s since 1970 is not a valid time"),
        ({"until": Timestamp(nanos=-1)}, "until: '0' s since 1970 is not a valid time"),
    ],
)
async def test_a_value_that_is_not_allowed_is_named(
    service: Service, entry: Entry, fields: dict[str, Any], problem: str
) -> None:
    request = apb.ListAuditEventsRequest(**fields)
    code, details = await failure(entry.stub.ListAuditEvents(request, metadata=entry.operator))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert problem in details


async def test_times_before_the_first_event_and_pages_beyond_the_last_are_empty(
    service: Service, entry: Entry
) -> None:
    assert await events(entry, until=Timestamp(seconds=-(10**9))) == []
    assert await events(entry, page_token="0") == []
    assert len(await events(entry, since=Timestamp(seconds=-(10**9)))) == 1
