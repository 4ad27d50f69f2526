"""Tokens and projects as an operator and two teams use them: a real service, trainctl and the clients."""

import json
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.patience import PATIENCE
from tests.support.server import Server
from training_service.client import AsyncTrainingClient, NotAllowed, NotFound, TrainingClient
from training_service.client.cli import app

JOB = ("submit", "program", "--dataset", "1", "--version", "v1")


class Person:
    """A user with a home of their own, who runs trainctl."""

    def __init__(self, home: Path, server: Server) -> None:
        home.mkdir(exist_ok=True)
        self.server = server
        self.environment: dict[str, str | None] = {
            **dict.fromkeys(
                ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "TRAINING_SERVICE_TOKEN", "TRAINING_PROJECT")
            ),
            "HOME": str(home),
            "COLUMNS": "500",
            "TRAINING_SERVICE_ADDRESS": server.address,
            "TZ": "UTC",
        }

    def __call__(self, *arguments: str, stdin: str = "", code: int = 0) -> str:
        """Run trainctl, which ends with `code`. Return its output: of a failure, that on standard error."""
        ended = CliRunner().invoke(
            app, arguments, input=stdin, env=self.environment, prog_name="trainctl", catch_exceptions=False
        )
        assert ended.exit_code == code, ended.stderr
        return ended.stdout if code == 0 else ended.stderr

    def stderr(self, *arguments: str) -> str:
        """Run trainctl and return its output on standard error."""
        return CliRunner().invoke(app, arguments, env=self.environment, catch_exceptions=False).stderr

    def login(self, token: str) -> None:
        assert token not in self("login", stdin=token)


@pytest.fixture
def service(tmp_path: Path, storage: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    made.data_dir = tmp_path / "operator" / ".local" / "state" / "training-service"
    options = ("auth.loopback=token", f"storage.uri={storage}", f"audit.file={tmp_path / 'audit.jsonl'}")
    made.start(*(part for option in options for part in ("-s", option))).close()
    yield made
    assert made.end(15) == 0


@pytest.fixture
def operator(service: Server, tmp_path: Path) -> Person:
    return Person(tmp_path / "operator", service)


def test_two_teams_share_a_service_and_do_not_see_each_other(
    service: Server, operator: Person, tmp_path: Path
) -> None:
    file = service.data_dir / "operator-token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text().splitlines()[0] not in service.log.read_text()
    assert operator("whoami").splitlines() == ["operator (token operator)", "operator in all projects"]
    operator("project", "set", "vision", "--max-queued", "9")
    operator("project", "set", "speech")
    operator("project", "set-member", "vision", "alice", "admin")
    token = operator("token", "create", "alice").strip()
    bot = operator("--project", "speech", "token", "create", "ci", "--role", "submitter").strip()

    alice, ci, stranger = (Person(tmp_path / name, service) for name in ("alice", "ci", "stranger"))
    assert "this service needs to know who is calling" in stranger("list", code=7)
    stranger.environment["TRAINING_SERVICE_TOKEN"] = token[:-1] + ("x" if token[-1] != "x" else "y")
    refusal = stranger("list", code=7)
    assert "the token is not valid here" in refusal
    assert token[-20:-1] not in refusal

    alice.login(token)
    ci.login(bot)
    assert alice("whoami").splitlines() == [f"alice (token {token[4:12]})", "admin in vision"]
    job = alice(*JOB).strip()
    other = ci(*JOB).strip()
    assert alice("list").split("\t")[0] == job
    assert ci("list", "--all-projects").split("\t")[0] == other
    for command in ("status", "describe", "watch", "wait", "logs", "artifacts", "cancel", "plot"):
        assert f"Job {other} doesn't exist" in alice(command, other, code=3), command
    assert f"Job {other} doesn't exist" in alice("fetch", other, "model.pt", code=3)
    assert "alice has no role there" in alice("--project", "speech", "list", code=7)
    assert "speech" not in alice("project", "list")
    assert alice("wait", job).split()[0]
    assert operator("list", "-A").count("\n") == 2

    alice("token", "revoke", token)  # the whole token by mistake: only its id is sent
    assert f"the token {token[4:12]} was revoked" in alice("list", code=7)
    assert token not in service.log.read_text()
    alice("logout")
    assert "this service needs to know who is calling" in alice("list", code=7)


def test_the_audit_shows_what_callers_did_and_what_they_were_denied(
    service: Server, operator: Person, tmp_path: Path
) -> None:
    operator("project", "set", "vision")
    operator("project", "set", "speech")
    admin = operator("--project", "vision", "token", "create", "ada", "--role", "admin").strip()
    ci, ada = Person(tmp_path / "ci", service), Person(tmp_path / "ada", service)
    ci.login(operator("--project", "speech", "token", "create", "ci", "--role", "viewer").strip())
    ada.login(admin)
    job = ada(*JOB).strip()
    ada("wait", job)
    ada("logs", job)
    ci("logs", job, code=3)
    ci("submit", *JOB[1:], code=7)

    def shown(person: Person, *arguments: str) -> set[str]:
        lines = person("audit", *arguments).splitlines()
        return {" ".join(line.split("\t")[1:6]) for line in lines}

    hidden, refused = f"denied speech/ci logs job {job} vision", "denied speech/ci submit - speech"
    own = {f"done vision/ada submit job {job} vision", f"read vision/ada logs job {job} vision"}
    deadline = time.monotonic() + PATIENCE
    while not {hidden, refused, *own} <= shown(operator) and time.monotonic() < deadline:
        time.sleep(0.1)  # denials and reads are written within a second
    everything = shown(operator, "--since", "1h")
    assert {hidden, refused, *own} <= everything
    assert {hidden, *own} <= shown(ada)
    assert refused not in shown(ada)
    assert shown(operator, "--by", "vision/ada", "--project", "vision") == own
    assert shown(operator, "--until", "1d") == set()
    assert "there are more than 1 events; --limit shows more" in operator.stderr("audit", "--limit", "1")
    assert "read the audit" in ci("audit", code=7)
    for line in service.folder.joinpath("audit.jsonl").read_text().splitlines():
        assert admin[13:] not in line
        assert json.loads(line)["outcome"] in ("done", "denied", "read")


def test_a_token_that_cannot_be_used_is_not_stored_and_not_shown(
    service: Server, operator: Person, tmp_path: Path
) -> None:
    alice = Person(tmp_path / "alice", service)
    wrong = "tst_abcdefgh_" + "s" * 43
    for arguments, stdin, code, problem in (
        (("login",), wrong, 7, "the token is not valid here"),
        (("login",), "\n", 2, "there is no token"),
        (("login", "--token", wrong), "", 2, "--token: the file cannot be read"),
        (("token", "create", "ci", "--role", "king"), "", 2, "is not one of viewer, submitter, admin"),
        (("token", "create", "ci", "--role", "viewer"), "", 2, "the role needs a project"),
    ):
        shown = alice(*arguments, stdin=stdin, code=code)
        assert problem in " ".join(shown.replace("│", " ").split())
        assert wrong not in shown
    assert not (tmp_path / "alice" / ".config" / "training-service" / "credentials").exists()
    assert "there was no token" in operator.stderr("logout")
    table = operator("--json", "token", "list")
    assert table == ""


async def test_the_clients_read_their_token_again_for_each_call(
    service: Server, operator: Person, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    operator("project", "set", "vision")
    file.write_text(operator("--project", "vision", "token", "create", "ci", "--role", "viewer"))
    with TrainingClient(service.address, token_file=file) as client:
        assert [*client.list()] == []
        with pytest.raises(NotAllowed, match="only a caller with the role submitter"):
            client.submit("program", "1", "v1")
        file.write_text(operator("--project", "vision", "token", "create", "ci", "--role", "admin"))
        job = client.submit("program", "1", "v1")
        assert client.wait(job, timeout=PATIENCE).submitted_by == "vision/ci"
        assert [each.name for each in client.access.tokens("vision")] == ["ci", "ci"]
    async with AsyncTrainingClient(service.address, token_file=file) as another:
        assert (await another.access.whoami()).default_project == "vision"
        assert "".join([piece.text async for piece in another.logs(job)])
        with pytest.raises(NotFound):
            await another.status(999)


def test_the_default_asks_for_no_proof_and_says_what_that_means(tmp_path: Path, storage: Path) -> None:
    server = Server(tmp_path)
    with server.start() as client:
        assert client.access.whoami().means == "open"
    assert server.end(15) == 0
    assert "can submit, read and cancel every job, without a token" in server.log.read_text()
    assert not (tmp_path / "operator-token").exists()


def test_a_name_in_the_file_and_in_the_api_is_refused_at_the_start(
    service: Server, operator: Person, tmp_path: Path
) -> None:
    operator("project", "set", "vision")
    assert service.end(15) == 0
    file = tmp_path / "projects.toml"
    file.write_text("[projects.vision]\n")
    refusal = service.refused("-s", f"auth.projects_file={file}")
    assert f"auth.projects_file: {file}: project vision was declared through the API, too" in refusal
    refusal = service.refused("-s", 'projects.vision={"max_queued": 1}')
    assert "projects.vision: project vision was declared through the API, too" in refusal
    service.start().close()
