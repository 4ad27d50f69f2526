"""The key of report tokens is rotated by an operator, while training processes of a real service run."""

import signal

import grpc
import pytest
from typer.testing import CliRunner

from tests.support.patience import PATIENCE
from tests.support.server import Server
from training_service._generated import training_reporter_pb2 as pb
from training_service._generated import training_service_pb2 as service_pb
from training_service._generated.training_reporter_pb2_grpc import TrainingReporterStub
from training_service.client import TrainingClient
from training_service.client.cli import app


def trainctl(server: Server, *arguments: str, code: int = 0) -> str:
    """Run trainctl, which ends with `code`. Return its output: of a failure, that on standard error."""
    environment = {"TRAINING_SERVICE_ADDRESS": server.address, "COLUMNS": "500", "TZ": "UTC"}
    ended = CliRunner().invoke(app, arguments, env=environment, catch_exceptions=False)
    assert ended.exit_code == code, ended.stderr
    return ended.stdout if code == 0 else ended.stderr


def columns(text: str) -> list[list[str]]:
    """The first three columns of each key."""
    return [line.split("\t")[:3] for line in text.splitlines()]


def running(server: Server, client: TrainingClient) -> tuple[int, str]:
    """Return a new job, and the token of its rank, once it runs."""
    job_id = client.submit("program", "1", "v1", parameters={"RUN_SECONDS": "forever"})
    for status in client.watch(job_id):
        if status.status == service_pb.running:
            break
    return job_id, server.rank(job_id, 0).environ()["REPORT_TOKEN"]


def report(server: Server, token: str, step: int) -> None:
    """Report as the rank with this token does."""
    with grpc.insecure_channel(server.address) as channel:
        sent = (("authorization", f"Bearer {token}"),)
        request = pb.ReportRequest(step=step)
        TrainingReporterStub(channel).Report(request, metadata=sent, timeout=PATIENCE, wait_for_ready=True)


def test_groups_report_on_after_a_rotation_and_a_kill(server: Server) -> None:
    with server.start() as client:
        first, token = running(server, client)
        assert token.count(".") == 2, "as in earlier versions: it names no key"
        assert columns(trainctl(server, "report-key", "rotate")) == [["2", "current", "-"]]
        report(server, token, 1)
        server.end(signal.SIGKILL)
    with server.start() as client:
        report(server, token, 2)
        second, other = running(server, client)
        assert other.split(".")[2] == "2"
        report(server, other, 1)
        listed = columns(trainctl(server, "report-key", "list"))
        assert listed == [["1", "replaced", "1"], ["2", "current", "-"]]

        assert columns(trainctl(server, "report-key", "remove", "1")) == [["1", "removed", "1"]]
        with pytest.raises(grpc.RpcError, match="an operator removed key 1 of report tokens"):
            report(server, token, 3)
        assert client.status(first).status == service_pb.running
        report(server, other, 2)
        assert "report key 2 is the current key" in trainctl(server, "report-key", "remove", "2", code=7)

        client.cancel(first)
        client.wait(first, timeout=PATIENCE)
        assert columns(trainctl(server, "report-key", "list")) == [["2", "current", "-"]]
        assert "report key 1 doesn't exist" in trainctl(server, "report-key", "remove", "1", code=3)
        report(server, other, 3)
        assert client.status(second).status == service_pb.running
