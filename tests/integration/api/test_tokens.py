"""Tokens at a real server: what is refused, and what happens when a right ends while it is used."""

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from job_tracker.access import tokens
from tests.support.access import Entry, RedisOpener, Sent, bearer, failure
from tests.support.api_service import Serve, Service, metadata
from tests.support.patience import PATIENCE
from tests.support.redis_server import server_or_skip
from training_service._generated import access_service_pb2 as apb
from training_service._generated import training_service_pb2 as pb

UNKNOWN = tokens.new_token().text


@pytest.fixture
async def service(serve: Serve) -> Service:
    return await serve(tracked=False, auth={"loopback": "token"})


@pytest.fixture
async def entry(service: Service) -> Entry:
    entry = Entry(service)
    await entry.project("vision", alice="submitter")
    return entry


async def listed(service: Service, sent: Sent, project: str = "vision") -> tuple[grpc.StatusCode, str]:
    request = pb.ListTrainingJobsRequest(project=project)
    return await failure(service.stub.ListTrainingJobs(request, metadata=sent, timeout=PATIENCE))


async def trained(service: Service, sent: Sent, project: str = "vision") -> int:
    request = pb.TrainRequest(metadata=metadata())
    return (await service.stub.Train(request, metadata=[*sent, ("x-project", project)])).job_id


async def watching(service: Service, sent: Sent, job_id: int) -> Any:
    """A watch that has sent its first status."""
    watch = service.stub.WatchTraining(pb.WatchTrainingRequest(job_id=job_id), metadata=sent)
    status: Any = await watch.read()
    assert status.job_id == job_id
    return watch


@pytest.mark.parametrize(
    "sent",
    [
        [],
        bearer(""),
        bearer("x"),
        bearer(UNKNOWN),
        bearer(UNKNOWN[:-1]),
        bearer(UNKNOWN + "x"),
        bearer("tst_operator_" + "x" * 43),
        bearer("tst_" + "x" * 5000),
        bearer("1.1." + "x" * 43),
        [("authorization", "Basic YWxpY2U6c2VjcmV0")],
        [("authorization", UNKNOWN)],
        [*bearer(UNKNOWN), *bearer(UNKNOWN)],
    ],
)
async def test_a_call_without_a_valid_token_is_refused_before_it_is_parsed(
    service: Service, entry: Entry, caplog: pytest.LogCaptureFixture, sent: Sent
) -> None:
    caplog.set_level(logging.DEBUG)
    code, details = await listed(service, sent)
    assert code is grpc.StatusCode.UNAUTHENTICATED
    call: Any = service.channel.unary_unary("/training.TrainingService/Train")
    assert (await failure(call(b"\xff not a message", metadata=sent)))[0] is grpc.StatusCode.UNAUTHENTICATED
    for _, value in sent:
        assert len(value) < 20 or value.removeprefix("Bearer ") not in details + caplog.text


async def test_a_token_far_beyond_the_limits_of_metadata_is_refused(service: Service, entry: Entry) -> None:
    code, _ = await listed(service, bearer("x" * 100_000))
    assert code in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAUTHENTICATED)


async def test_unknown_and_foreign_tokens_get_the_same_answer(service: Service, entry: Entry) -> None:
    """Also tried: the id of a token of this service with another secret."""
    made = (await entry.token("alice")).text
    forged = UNKNOWN.replace(UNKNOWN[4:12], made[4:12], 1)
    answers = {await listed(service, bearer(text)) for text in (UNKNOWN, forged, "nonsense")}
    assert answers == {(grpc.StatusCode.UNAUTHENTICATED, tokens.REFUSED)}


async def test_a_token_of_another_store_is_refused(service: Service, entry: Entry, tmp_path: Path) -> None:
    made = tokens.new_token()
    assert await service.store.token(made.id) is None
    assert (await listed(service, bearer(made.text)))[0] is grpc.StatusCode.UNAUTHENTICATED


async def test_only_the_holder_of_a_token_learns_that_it_was_revoked(service: Service, entry: Entry) -> None:
    made = await entry.token("ci", "vision", "viewer")
    sent = bearer(made.text)
    assert (await listed(service, sent))[0] is grpc.StatusCode.OK
    await entry.stub.RevokeToken(apb.RevokeTokenRequest(id=made.token.id), metadata=entry.operator)
    code, details = await listed(service, sent)
    assert code is grpc.StatusCode.UNAUTHENTICATED
    assert details.startswith(f"the token {made.token.id} was revoked at 20")
    forged = bearer(UNKNOWN.replace(UNKNOWN[4:12], made.token.id, 1))
    assert (await listed(service, forged))[1] == tokens.REFUSED


async def test_a_token_that_expires_ends_its_streams(service: Service, entry: Entry) -> None:
    job = await trained(service, entry.operator)
    request = apb.CreateTokenRequest(
        name="ci", project="vision", role=apb.viewer, lifetime=Duration(seconds=3600)
    )
    made = await entry.stub.CreateToken(request, metadata=entry.operator)
    watch = await watching(service, bearer(made.text), job)
    later = time.time() + 7200
    service.access.callers._clock = lambda: later
    code, details = await failure(watch)
    assert code is grpc.StatusCode.UNAUTHENTICATED
    assert details.startswith(f"the token {made.token.id} expired at 20")
    assert (await listed(service, bearer(made.text)))[1] == details


@pytest.mark.parametrize("means", ["the token is revoked", "the role is taken away", "the role is reduced"])
async def test_a_right_that_ends_in_the_middle_of_a_stream_ends_the_stream(
    service: Service, entry: Entry, means: str
) -> None:
    job = await trained(service, entry.operator)
    alice, other = await entry.token("alice"), await entry.token("ci", "vision", "viewer")
    watch = await watching(service, bearer(alice.text), job)
    untouched = await watching(service, bearer(other.text), job)
    match means:
        case "the token is revoked":
            own = bearer(alice.text)
            await entry.stub.RevokeToken(apb.RevokeTokenRequest(id=alice.token.id), metadata=own)
            expected = grpc.StatusCode.UNAUTHENTICATED
        case "the role is taken away":
            request = apb.RemoveMemberRequest(project="vision", member="alice")
            await entry.stub.RemoveMember(request, metadata=entry.operator)
            expected = grpc.StatusCode.PERMISSION_DENIED
        case _:
            await entry.member("vision", "alice", "viewer")
            await service.stub.CancelTraining(pb.CancelTrainingRequest(job_id=job), metadata=entry.operator)
            expected = grpc.StatusCode.OK  # a viewer may still watch
    assert (await failure(watch))[0] is expected
    if expected is not grpc.StatusCode.OK:
        assert (await watching(service, bearer(other.text), job)) is not None
    untouched.cancel()


async def test_a_member_gets_another_role_without_a_restart(service: Service, entry: Entry) -> None:
    alice = bearer((await entry.token("alice")).text)
    job = await trained(service, entry.operator)
    cancel = pb.CancelTrainingRequest(job_id=job)
    code, details = await failure(service.stub.CancelTraining(cancel, metadata=alice))
    assert (code, "alice is submitter" in details) == (grpc.StatusCode.PERMISSION_DENIED, True)
    await entry.member("vision", "alice", "admin")
    assert (await failure(service.stub.CancelTraining(cancel, metadata=alice)))[0] is grpc.StatusCode.OK


async def test_the_default_project_is_one_in_which_the_caller_has_a_role(
    service: Service, entry: Entry
) -> None:
    await entry.project("audio", alice="viewer")
    alice = bearer((await entry.token("alice")).text)
    who = await entry.stub.WhoAmI(apb.WhoAmIRequest(), metadata=alice)
    assert (who.name, who.means, who.default_project) == ("alice", "token", "audio")
    assert dict(who.roles) == {"audio": apb.viewer, "vision": apb.submitter}
    who = await entry.stub.WhoAmI(apb.WhoAmIRequest(), metadata=[*alice, ("x-project", "vision")])
    assert who.default_project == "vision"
    twice = [*alice, ("x-project", "vision"), ("x-project", "audio")]
    code, details = await failure(entry.stub.WhoAmI(apb.WhoAmIRequest(), metadata=twice))
    assert (code, details) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "x-project: it is given 2 times; send it once",
    )


async def test_a_project_with_live_jobs_is_not_deleted(service: Service, entry: Entry) -> None:
    made = await entry.token("ci", "vision", "submitter")
    job = await trained(service, bearer(made.text))
    delete = apb.DeleteProjectRequest(name="vision")
    code, details = await failure(entry.stub.DeleteProject(delete, metadata=entry.operator))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert details == ("project vision has jobs that have not ended (1); cancel them, or wait for their end")
    await service.stub.CancelTraining(pb.CancelTrainingRequest(job_id=job), metadata=bearer(made.text))
    await entry.stub.DeleteProject(delete, metadata=entry.operator)
    assert "was revoked" in (await listed(service, bearer(made.text)))[1]
    code, details = await failure(
        service.stub.Train(
            pb.TrainRequest(metadata=metadata()), metadata=[*entry.operator, ("x-project", "vision")]
        )
    )
    assert (code, "vision doesn't exist" in details) == (grpc.StatusCode.NOT_FOUND, True)
    shown = await service.stub.GetTrainingStatus(
        pb.GetTrainingStatusRequest(job_id=job), metadata=entry.operator
    )
    assert shown.project == "vision"


async def test_a_token_of_a_deleted_project_is_not_valid_in_a_new_one_of_the_same_name(
    service: Service, entry: Entry
) -> None:
    made = await entry.token("ci", "vision", "viewer")
    await entry.stub.DeleteProject(apb.DeleteProjectRequest(name="vision"), metadata=entry.operator)
    await entry.project("vision")
    assert (await listed(service, bearer(made.text)))[0] is grpc.StatusCode.UNAUTHENTICATED


async def test_an_admin_gives_no_rights_beyond_the_project(service: Service, entry: Entry) -> None:
    await entry.project("speech")
    admin = bearer((await entry.token("ci", "vision", "admin")).text)
    for wanted, code in (
        ({"name": "x", "project": "vision", "role": apb.operator}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"name": "x", "role": apb.operator}, grpc.StatusCode.PERMISSION_DENIED),
        ({"name": "x"}, grpc.StatusCode.PERMISSION_DENIED),
        ({"name": "x", "project": "speech", "role": apb.viewer}, grpc.StatusCode.PERMISSION_DENIED),
        ({"name": "x", "project": "vision", "role": 77}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"name": "a b", "project": "vision", "role": apb.viewer}, grpc.StatusCode.INVALID_ARGUMENT),
    ):
        request = apb.CreateTokenRequest(**wanted)
        assert (await failure(entry.stub.CreateToken(request, metadata=admin)))[0] is code, wanted
    made = await entry.stub.CreateToken(
        apb.CreateTokenRequest(name="alice", project="vision", role=apb.admin), metadata=admin
    )
    who = await entry.stub.WhoAmI(apb.WhoAmIRequest(), metadata=bearer(made.text))
    assert who.name == "vision/alice", "it cannot pass for the member alice"


async def test_tokens_are_in_no_log_no_error_and_no_list(
    service: Service, entry: Entry, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    made = await entry.token("ci", "vision", "viewer")
    secret = made.text.split("_", 2)[2]
    sent = bearer(made.text)
    await listed(service, sent)
    await listed(service, sent, "speech")
    await entry.stub.RevokeToken(apb.RevokeTokenRequest(id=made.token.id), metadata=entry.operator)
    answers = [await listed(service, sent)]
    found = await entry.stub.ListTokens(apb.ListTokensRequest(), metadata=entry.operator)
    assert made.token.id in str(found)
    stored = await service.store.token(made.token.id)
    for text in (str(found), str(answers), caplog.text, repr(stored), repr(tokens.new_token())):
        assert secret not in text
        assert "digest" not in text
    assert secret.encode() not in b"".join(path.read_bytes() for path in tmp_path.glob("jobs.db*"))


async def test_a_token_or_a_long_text_in_a_wrong_field_is_in_no_log_and_no_error(
    service: Service, entry: Entry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    made = await entry.token("alice")
    sent = bearer(made.text)
    calls: list[Any] = [
        entry.stub.RevokeToken(apb.RevokeTokenRequest(id=made.text), metadata=sent),
        service.stub.Train(
            pb.TrainRequest(metadata=metadata(dataset_id=made.text, train_data_version_hash=made.text)),
            metadata=sent,
        ),
    ]
    for project in (made.text, "x" * 100_000, "line\nbreak"):
        request = apb.ListTokensRequest(project=project)
        calls.append(entry.stub.ListTokens(request, metadata=sent))
    for call in calls:
        _, details = await failure(call)
        assert made.text[13:] not in details
        assert len(details) < 1000
        assert "\n" not in details
    assert made.text[13:] not in caplog.text
    assert max(map(len, caplog.text.splitlines())) < 1000


async def test_the_last_use_is_shown(service: Service, entry: Entry) -> None:
    made = await entry.token("ci", "vision", "viewer")
    await listed(service, bearer(made.text))
    await service.access.callers.flush()
    [found] = [
        each
        for each in (
            await entry.stub.ListTokens(apb.ListTokensRequest(project="vision"), metadata=entry.operator)
        ).tokens
        if each.id == made.token.id
    ]
    assert found.HasField("used_at")


async def test_a_wrong_token_is_refused_even_if_the_service_is_open(serve: Serve) -> None:
    service = await serve(tracked=False)
    assert (await listed(service, [], "default"))[0] is grpc.StatusCode.OK
    assert (await listed(service, bearer(UNKNOWN), "default"))[0] is grpc.StatusCode.UNAUTHENTICATED


async def test_a_change_in_one_replica_counts_in_the_others_within_a_second(
    serve: Serve, tmp_path: Path
) -> None:
    redis = server_or_skip(tmp_path)
    redis.start()
    try:
        opener: Any = RedisOpener(redis)
        one, two = [await serve(opener, tracked=False, auth={"loopback": "token"}) for _ in range(2)]
        entry = Entry(one)
        made = await entry.token("ci", "default", "submitter")
        sent = bearer(made.text)
        watch = await watching(two, sent, await trained(two, sent, "default"))
        began = time.monotonic()
        await entry.stub.RevokeToken(apb.RevokeTokenRequest(id=made.token.id), metadata=entry.operator)
        assert (await failure(watch))[0] is grpc.StatusCode.UNAUTHENTICATED
        assert (await listed(two, sent, "default"))[0] is grpc.StatusCode.UNAUTHENTICATED
        assert time.monotonic() - began < 60, "a second, on a machine that is not busy"
        redis.kill()
        code, details = await failure(
            one.stub.WatchTraining(pb.WatchTrainingRequest(job_id=1), metadata=sent)
        )
        assert code is grpc.StatusCode.UNAVAILABLE, details
    finally:
        redis.end()


PROJECTS = '[projects.vision]\nmembers = {{ alice = "{role}" }}\n'


async def test_a_changed_file_of_projects_counts_without_a_restart(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "projects.toml"
    file.write_text(PROJECTS.format(role="submitter"))
    service = await serve(tracked=False, auth={"loopback": "token", "projects_file": str(file)})
    entry = Entry(service)
    alice = bearer((await entry.token("alice")).text)
    job = await trained(service, alice)
    watch = await watching(service, alice, job)
    file.write_text('[projects.vision]\nmembers = { bob = "viewer" }\n')
    code, details = await failure(watch)
    assert (code, "alice has no role there" in details) == (grpc.StatusCode.PERMISSION_DENIED, True)
    assert (await listed(service, alice))[0] is grpc.StatusCode.PERMISSION_DENIED
    for call in (
        entry.stub.SetProject(apb.SetProjectRequest(name="vision"), metadata=entry.operator),
        entry.stub.DeleteProject(apb.DeleteProjectRequest(name="vision"), metadata=entry.operator),
        entry.stub.SetMember(
            apb.SetMemberRequest(project="vision", member="alice", role=apb.viewer), metadata=entry.operator
        ),
    ):
        code, details = await failure(call)
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert details == "project vision is declared in a file of the service; change it there"


async def test_a_file_that_declares_a_project_of_the_api_is_not_used(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "projects.toml"
    file.write_text("")
    service = await serve(tracked=False, auth={"loopback": "token", "projects_file": str(file)})
    entry = Entry(service)
    await entry.project("vision", alice="viewer")
    alice = bearer((await entry.token("alice")).text)
    file.write_text('[projects.vision]\nmembers = { bob = "viewer" }\n')
    problem = "project vision was declared through the API, too; remove it from the file"
    async with asyncio.timeout(PATIENCE):
        while problem not in caplog.text:
            await asyncio.sleep(0.05)
    assert (await listed(service, alice))[0] is grpc.StatusCode.OK


async def test_tokens_are_listed_in_pages(service: Service, entry: Entry) -> None:
    made = [await entry.token(f"n{number}", "vision", "viewer") for number in range(25)]
    seen: list[str] = []
    after = ""
    while True:
        request = apb.ListTokensRequest(project="vision", page_size=10, page_token=after)
        page = await entry.stub.ListTokens(request, metadata=entry.operator)
        seen += [each.id for each in page.tokens]
        if not (after := page.next_page_token):
            break
    assert seen == sorted(each.token.id for each in made)
