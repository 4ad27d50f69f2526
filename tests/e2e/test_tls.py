"""A real service with TLS: its clients, its ranks, its probes, and the replacement of its certificates."""

import asyncio
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from tests.support.certificates import CLIENT_ONLY, DAY, LOCAL, Authority, Files, credentials, replace
from tests.support.patience import PATIENCE
from tests.support.ports import free_port
from tests.support.server import Server, health, refusal
from tests.support.trainers.forked_python import ForkedPython
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub
from training_service.client import (
    AsyncTrainingClient,
    InvalidRequest,
    TrainingClient,
    TrainingServiceError,
    Unreachable,
    Untrusted,
)

TRAINER = """
import os
from trainer_kit import grpc_sink
from trainer_kit.group import join
from trainer_kit.progress import reporting

if "REPORT_CA" in os.environ:
    grpc_sink._CLOSE_SECONDS = 240.0  # after this time, it prints the reports
with join() as group, reporting(group) as reporter:
    for step in range(1, 11):
        reporter.report(step=step, total_steps=10, loss=1 / step)
"""
OUT_OF_TIME = re.compile("timed out|before receiving SETTINGS|before handshake timeout", re.IGNORECASE)
"""Matches gRPC's errors of attempts to connect that took too long."""
ALGORITHM = """
[algorithms.reporting.process]
command = ["python", "{program}"]
"""


class Secured(Server):
    """A service with TLS, and its authority."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.authority = Authority(folder)
        self.files = self.authority.issue(*LOCAL).write(folder, "server")
        self.ca = str(self.authority.file)

    def serve(self, *settings: str) -> None:
        """Start it with TLS and these settings."""
        tls = [f"server.tls.certificate={self.files.certificate}", f"server.tls.key={self.files.key}"]
        self.launch(*(part for setting in (*tls, *settings) for part in ("-s", setting)))

    def client(self, cert: Files | None = None) -> TrainingClient:
        """A client that trusts the authority."""
        if cert is None:
            return TrainingClient(self.address, ca=self.ca)
        return TrainingClient(self.address, ca=self.ca, cert=cert.certificate, key=cert.key)

    def serial(self) -> int:
        """The serial number of the certificate of a new connection.

        The service closes connections whose handshakes take longer than 5 s. Such a connection is repeated.
        """
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self._serial()
            except (ConnectionError, ssl.SSLEOFError):
                if time.monotonic() > deadline:
                    raise

    def _serial(self) -> int:
        context = ssl.create_default_context(cafile=self.ca)
        host, _, port = self.address.rpartition(":")
        with (
            socket.create_connection((host, int(port)), PATIENCE) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as connection,
        ):
            found = connection.getpeercert()
            assert found is not None
            return int(str(found["serialNumber"]), 16)


def final(call: Callable[[], object]) -> TrainingServiceError:
    """Return the error of a call that cannot succeed.

    The error names the reason of the last attempt to connect, which may be that the attempt took longer than
    its 2 s. Such a call is repeated.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        with pytest.raises(TrainingServiceError) as raised:
            call()
        if not OUT_OF_TIME.search(str(raised.value)) or time.monotonic() > deadline:
            return raised.value


@pytest.fixture
def secured(tmp_path: Path, storage: Path) -> Iterator[Secured]:
    made = Secured(tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        assert made.end(signal.SIGTERM) == 0


def test_all_clients_submit_and_read_over_tls(secured: Secured) -> None:
    secured.serve()
    with secured.client() as client:
        job = client.submit("program", "1", "v1")
        assert client.wait(job, timeout=PATIENCE).status == pb.succeed

    async def status() -> int:
        async with AsyncTrainingClient(secured.address, ca=secured.authority.file) as client:
            return (await client.status(job)).status

    assert asyncio.run(status()) == pb.succeed
    listed = trainctl(
        "--json", "list", TRAINING_SERVICE_ADDRESS=secured.address, TRAINING_SERVICE_CA=secured.ca
    )
    assert int(json.loads(listed.stdout)["job_id"]) == job
    home = secured.folder / "home"
    (home / "training-service").mkdir(parents=True)
    (home / "training-service" / "client.toml").write_text(
        f'address = "{secured.address}"\nca = "{secured.ca}"\n'
    )
    assert trainctl("status", str(job), XDG_CONFIG_HOME=str(home)).returncode == 0


def test_a_client_says_why_it_does_not_trust_the_service(secured: Secured) -> None:
    secured.serve()
    other = Authority(secured.folder, "other")

    def error(address: str = secured.address, **options: str) -> TrainingServiceError:
        def call() -> None:
            with TrainingClient(address, patience=0, **options) as client:  # type: ignore[arg-type]
                client.status(1)

        return final(call)

    unknown = error(ca=str(other.file))
    assert isinstance(unknown, Untrusted)
    assert "issued by an authority that is not in ca (--ca)" in str(unknown)
    assert "an authority that is not in ca" in str(error(ca="system"))
    plain = error()
    assert isinstance(plain, Unreachable)
    assert "it may need TLS (--ca)" in str(plain)
    port = secured.address.rpartition(":")[2]
    wrong = error(f"127.0.0.1:{port}", ca=secured.ca, server_name="elsewhere.example")
    assert "its certificate is for another host" in str(wrong)
    assert "need server_name" in str(error(f"127.0.0.1:{port},127.0.0.1:{port}", ca=secured.ca))
    with TrainingClient(
        f"127.0.0.1:{port},127.0.0.1:{port}", ca=secured.ca, server_name="localhost"
    ) as client:
        assert list(client.list()) == []
    failed = trainctl("--ca", str(other.file), "-a", secured.address, "list")
    assert failed.returncode == 4
    assert len(failed.stderr.splitlines()) == 1, failed.stderr


def test_a_client_that_uses_tls_says_that_the_service_does_not(server: Server) -> None:
    ca = Authority(server.folder).file
    with server.start(), TrainingClient(server.address, ca=ca) as client:
        error = final(lambda: client.status(1))
    assert isinstance(error, Untrusted)
    assert "it does not use TLS; leave out ca and cert" in str(error)


@pytest.mark.parametrize("content", [None, b"", b"garbage", b"-----BEGIN CERTIFICATE-----\nMIIB\n"])
def test_a_client_names_a_file_that_it_cannot_use(tmp_path: Path, content: bytes | None) -> None:
    ca = tmp_path / "ca.pem"
    if content is not None:
        ca.write_bytes(content)
    with pytest.raises(InvalidRequest, match=f"ca: {ca}"):
        TrainingClient("127.0.0.1:1", ca=ca)


def test_a_client_needs_a_certificate_and_the_key_that_fits(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    one, two = (authority.issue().write(tmp_path, name) for name in ("one", "two"))
    with pytest.raises(InvalidRequest, match="the key does not fit the certificate"):
        TrainingClient("127.0.0.1:1", ca=authority.file, cert=one.certificate, key=two.key)
    with pytest.raises(InvalidRequest, match="cert and key are only allowed together"):
        TrainingClient("127.0.0.1:1", ca=authority.file, cert=one.certificate)


def test_replacing_the_certificate_under_64_calls_in_flight_drops_none(secured: Secured) -> None:
    secured.serve()
    with secured.client() as client:
        job = client.submit("program", "1", "v1")

    async def call(until: asyncio.Event) -> int:
        made = 0
        while not until.is_set():  # each connects anew, so that each new certificate is used
            async with grpc.aio.secure_channel(
                secured.address, credentials(secured.authority), [("grpc.use_local_subchannel_pool", 1)]
            ) as channel:
                for _ in range(3):
                    # A handshake may take longer than the service's limit of 5 s. So the call waits for a
                    # connection. It is not repeated once it was sent.
                    await TrainingServiceStub(channel).GetTrainingStatus(
                        pb.GetTrainingStatusRequest(job_id=job), wait_for_ready=True
                    )
                    made += 1
        return made

    async def replace_often() -> tuple[set[int], int]:
        done = asyncio.Event()
        seen: set[int] = set()
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(call(done)) for _ in range(64)]
            for _ in range(4):
                secured.authority.issue(*LOCAL).write(secured.folder, "server")
                before = len(seen)
                while len(seen) == before:  # until a connection has the new one
                    seen.add(await asyncio.to_thread(secured.serial))
            done.set()
        return seen, sum(task.result() for task in calls)

    seen, calls = asyncio.run(replace_often())
    assert len(seen) == 4
    assert calls > 64
    # If the test pauses between the replacements of the key and of the certificate, they do not fit.
    errors = [line for line in secured.log.read_text().splitlines() if "ERROR" in line]
    assert [line for line in errors if "the key does not fit" not in line] == []


def test_a_bad_replacement_is_logged_and_the_old_certificate_stays(secured: Secured) -> None:
    secured.serve()
    before = secured.serial()
    with secured.client() as client:
        replace(secured.files.key, secured.authority.issue(*LOCAL).key, 0o600)
        while "stays in use" not in secured.log.read_text():
            assert secured.serial() == before
        assert list(client.list()) == []
    assert f"server.tls.key: {secured.files.key}: the key does not fit" in secured.log.read_text()


def test_probes_need_no_tls_and_reach_nothing_but_health(secured: Secured) -> None:
    address = f"127.0.0.1:{free_port()}"
    secured.serve(f"server.health_address={address}")
    assert health("--address", address).stdout == "SERVING\n"
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as refused:
        TrainingServiceStub(channel).ListTrainingJobs(pb.ListTrainingJobsRequest(), timeout=PATIENCE)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_the_health_command_uses_the_tls_of_the_settings(secured: Secured) -> None:
    secured.serve()
    config = secured.folder / "probe.toml"
    config.write_text(
        f'[server]\naddress = "{secured.address}"\n[server.tls]\n'
        f'certificate = "{secured.files.certificate}"\nkey = "{secured.files.key}"\n'
    )
    assert health("--config", str(config)).stdout == "SERVING\n"


def test_required_client_certificates_keep_everyone_else_out(secured: Secured) -> None:
    secured.serve(
        "server.tls.client_certificates=required",
        f"server.tls.client_ca={secured.ca}",
        "server.insecure=false",
        'auth.operators=["CN=alice"]',
    )
    with secured.client() as client:
        without = final(lambda: client.status(1))
    other = Authority(secured.folder, "other")
    foreign, valid = (
        authority.issue(subject="alice").write(secured.folder, name)
        for authority, name in ((other, "foreign"), (secured.authority, "valid"))
    )
    with secured.client(foreign) as client:
        with_foreign = final(lambda: client.status(1))
    for error in (without, with_foreign):
        assert isinstance(error, Unreachable)
        assert "another client certificate" in str(error)
    with secured.client(valid) as client:
        job = client.submit("program", "1", "v1")
        assert client.wait(job, timeout=PATIENCE).status == pb.succeed
    assert "callers need a client certificate" in secured.log.read_text()


def test_optional_client_certificates_have_an_address_of_their_own(secured: Secured) -> None:
    address = f"127.0.0.1:{free_port()}"
    secured.serve(
        "server.tls.client_certificates=optional",
        f"server.tls.client_ca={secured.ca}",
        f"server.tls.certificate_address={address}",
        'auth.operators=["spiffe://example.org/ci"]',
    )
    files = secured.authority.issue("spiffe://example.org/ci", subject=None).write(secured.folder, "ci")
    with secured.client() as client:
        assert list(client.list()) == []
    with TrainingClient(address, ca=secured.ca, cert=files.certificate, key=files.key) as client:
        assert list(client.list()) == []
    with pytest.raises(Unreachable), TrainingClient(address, ca=secured.ca) as client:
        client.status(1)


def test_ranks_report_over_tls_to_an_address_that_takes_nothing_else(
    forked_python: ForkedPython, secured: Secured
) -> None:
    program = secured.folder / "trainer.py"
    program.write_text(TRAINER)
    with (secured.folder / "config.toml").open("a") as config:
        config.write(ALGORITHM.format(program=program))
    listen = f"127.0.0.1:{free_port()}"
    secured.serve(
        "server.tls.client_certificates=required",
        f"server.tls.client_ca={secured.ca}",
        f"reports.listen={listen}",
        f"reports.ca={secured.ca}",
        'auth.operators=["CN=operator"]',
        f"process.path={forked_python.path}",
    )
    files = secured.authority.issue(subject="operator", usage=CLIENT_ONLY).write(secured.folder, "operator")
    with secured.client(files) as client:
        job = client.submit("reporting", "1", "v1", instances=2)
        ended = client.wait(job, timeout=PATIENCE)
        assert (ended.status, ended.progress.step) == (pb.succeed, 10), ended
        assert "::progress::" not in "".join(piece.text for piece in client.logs(job))
    with (
        grpc.secure_channel(listen, credentials(secured.authority)) as channel,
        pytest.raises(grpc.RpcError) as refused,
    ):
        TrainingServiceStub(channel).ListTrainingJobs(pb.ListTrainingJobsRequest(), timeout=PATIENCE)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_ranks_that_cannot_verify_the_certificate_report_by_lines(
    forked_python: ForkedPython, secured: Secured
) -> None:
    program = secured.folder / "trainer.py"
    program.write_text(TRAINER)
    with (secured.folder / "config.toml").open("a") as config:
        config.write(ALGORITHM.format(program=program))
    secured.authority.issue("train.example").write(secured.folder, "server")
    secured.serve(f"process.path={forked_python.path}")
    options = {"ca": secured.ca, "server_name": "train.example"}
    with TrainingClient(secured.address, **options) as client:  # type: ignore[arg-type]
        ended = client.wait(client.submit("reporting", "1", "v1"), timeout=PATIENCE)
        assert (ended.status, ended.progress.step) == (pb.succeed, 10), ended
    assert "it is not for 127.0.0.1, so ranks report by printed lines only" in secured.log.read_text()


def test_metrics_are_served_over_tls(secured: Secured) -> None:
    port = free_port()
    secured.serve(f"metrics.port={port}")
    context = ssl.create_default_context(cafile=secured.ca)
    with (
        socket.create_connection(("127.0.0.1", port)),  # a silent connection holds up no other
        urllib.request.urlopen(
            f"https://localhost:{port}/metrics", context=context, timeout=PATIENCE
        ) as answer,
    ):
        text = answer.read().decode()
    assert 'training_service_certificate_expiry_timestamp_seconds{setting="server.tls.certificate"}' in text
    assert "training_service_certificate_problems 0.0" in text


def test_garbage_and_silence_at_each_port_harm_no_other_client(secured: Secured) -> None:
    health, reports, metrics = (free_port() for _ in range(3))
    secured.serve(
        f"server.health_address=127.0.0.1:{health}",
        f"reports.listen=127.0.0.1:{reports}",
        f"metrics.port={metrics}",
    )
    ports = [int(secured.address.rpartition(":")[2]), health, reports, metrics]
    silent = [socket.create_connection(("127.0.0.1", port), 60) for port in ports]
    for port in ports:
        for content in (b"", b"\0" * 100, os.urandom(2000), b"\x16\x03\x01\xff\xff" + os.urandom(500)):
            with socket.create_connection(("127.0.0.1", port), 20) as connection:
                connection.sendall(content)
    with secured.client() as client:
        assert list(client.list()) == []
    for connection in silent:  # each is closed after about five seconds
        with connection, suppress(ConnectionResetError):
            while connection.recv(1000):
                pass
    assert "Traceback" not in secured.log.read_text()


def test_a_service_does_not_start_with_files_that_it_cannot_use(secured: Secured) -> None:
    def line(certificate: Path, key: Path, *more: str) -> str:
        given = (f"server.tls.certificate={certificate}", f"server.tls.key={key}", *more)
        settings = [part for setting in given for part in ("-s", setting)]
        return refusal("serve", "--data-dir", str(secured.folder), "--address", "127.0.0.1:0", *settings)

    files, folder = secured.files, secured.folder
    old = secured.authority.issue(*LOCAL, lasts=-DAY).write(folder, "old")
    assert line(old.certificate, old.key).startswith(
        f"server.tls.certificate: {old.certificate}: the certificate expired at "
    )
    assert line(files.certificate, old.key).startswith(f"server.tls.key: {old.key}: the key does not fit")
    missing = folder / "missing.pem"
    assert (
        line(missing, files.key)
        == f"server.tls.certificate: {missing}: cannot be read (No such file or directory)"
    )
    files.key.chmod(0o604)
    assert "every user may use the key (mode 0604)" in line(files.certificate, files.key)
    files.key.chmod(0o600)
    assert line(files.certificate, files.key, "reports.address=train.example:51001").startswith(
        f"server.tls.certificate: {files.certificate}: the certificate is not for train.example, the host of "
        "reports.address, but for 127.0.0.1, localhost"
    )
    assert line(files.certificate, files.key, f"reports.ca={missing}").startswith("reports.ca: ")


def trainctl(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run trainctl to its end with only PATH and these environment variables."""
    return subprocess.run(
        [str(Path(sys.executable).with_name("trainctl")), *arguments],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
