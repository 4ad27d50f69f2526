"""The address and the files of TLS, from arguments, environment variables and a file."""

from pathlib import Path

import pytest

from training_service.client.connection import Connection, connection
from training_service.client.errors import InvalidRequest
from training_service.settings.service import ServerSettings


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("ADDRESS", "CA", "CERT", "KEY", "SERVER_NAME"):
        monkeypatch.delenv(f"TRAINING_SERVICE_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "training-service" / "client.toml"
    path.parent.mkdir()
    return path


def test_without_anything_it_is_this_machine_without_tls(file: Path) -> None:
    assert connection() == Connection(ServerSettings().address), "where a service listens by default"
    assert connection().credentials is None


def test_an_argument_comes_before_the_environment_and_that_before_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('address = "a.example:1"\nca = "/file/ca"\nserver_name = "file"\n')
    assert connection() == Connection("a.example:1", ca="/file/ca", server_name="file")
    monkeypatch.setenv("TRAINING_SERVICE_CA", "/environment/ca")
    assert connection().ca == "/environment/ca"
    assert connection(ca=Path("/argument/ca")).ca == "/argument/ca"


def test_the_tls_of_the_file_belongs_to_its_address(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('address = "a.example:1"\nca = "system"\n')
    assert connection("a.example:1").is_encrypted
    assert not connection("localhost:51001").is_encrypted
    monkeypatch.setenv("TRAINING_SERVICE_ADDRESS", "localhost:51001")
    assert not connection().is_encrypted


def test_files_are_relative_to_the_file_that_names_them(file: Path) -> None:
    file.write_text('ca = "ca.pem"\ncert = "~/cert.pem"\nkey = "/key.pem"\n')
    found = connection()
    assert (found.ca, found.cert, found.key) == (
        str(file.parent / "ca.pem"),
        str(Path.home() / "cert.pem"),
        "/key.pem",
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            "adress = 'a:1'",
            "adress: not allowed; allowed are strings with the keys address, ca, cert, key, server_name",
        ),
        ("ca = 1", "ca: not allowed"),
        ("ca = ", "not valid TOML"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(file: Path, content: str | None, problem: str) -> None:
    if content is None:
        file.mkdir()
    else:
        file.write_text(content)
    with pytest.raises(InvalidRequest, match=f"{file}: {problem}"):
        connection()


def test_a_server_name_without_tls_is_refused(file: Path) -> None:
    with pytest.raises(InvalidRequest, match="server_name: 'a' needs TLS; give ca"):
        _ = connection(server_name="a").credentials
