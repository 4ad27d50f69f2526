"""The token that calls carry: where it comes from, and where it is not sent."""

import stat
from pathlib import Path

import pytest

from training_service.client.connection import Connection
from training_service.client.credentials import (
    Credentials,
    credentials_path,
    is_loopback,
    store_token,
    stored_tokens,
)
from training_service.client.errors import InvalidRequest

HERE = "127.0.0.1:51001"


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("TRAINING_SERVICE_TOKEN", raising=False)
    monkeypatch.delenv("TRAINING_SERVICE_TOKEN_FILE", raising=False)


def sent(
    address: str = HERE, token: str | None = None, file: Path | None = None, ca: str | None = None
) -> str:
    pairs = Credentials(Connection(address, ca=ca), token, file).metadata()
    return pairs[0][1].removeprefix("Bearer ") if pairs else ""


def operator_token(tmp_path: Path, address: str = HERE, mode: int = 0o600) -> None:
    folder = tmp_path / "state" / "training-service"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "operator-token").write_text(f"of-the-operator\n{address}\n")
    (folder / "operator-token").chmod(mode)


def test_without_a_token_nothing_is_sent() -> None:
    assert Credentials(Connection(HERE)).metadata() == ()


def test_the_first_source_that_has_a_token_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operator_token(tmp_path)
    assert sent() == "of-the-operator"
    store_token(HERE, "stored")
    assert sent() == "stored"
    file = tmp_path / "file"
    file.write_text("of-the-file\nand more\n")
    monkeypatch.setenv("TRAINING_SERVICE_TOKEN_FILE", str(file))
    assert sent() == "of-the-file"
    monkeypatch.setenv("TRAINING_SERVICE_TOKEN", "of-the-variable")
    assert sent() == "of-the-variable"
    assert sent(file=file) == "of-the-file"
    assert sent(token="given", file=file) == "given"
    assert sent(token="") == ""


def test_files_and_variables_are_read_again_for_each_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("one")
    credentials = Credentials(Connection(HERE), token_file=file)
    assert credentials.metadata() == (("authorization", "Bearer one"),)
    file.write_text("two")
    assert credentials.metadata() == (("authorization", "Bearer two"),)
    monkeypatch.setenv("TRAINING_SERVICE_TOKEN", "three")
    assert Credentials(Connection(HERE)).metadata() == (("authorization", "Bearer three"),)


def test_a_token_is_sent_without_encryption_to_this_machine_only() -> None:
    store_token("train.example:51001", "stored")
    with pytest.raises(InvalidRequest, match="without encryption; give ca"):
        sent("train.example:51001")
    assert sent("train.example:51001", ca="system") == "stored"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("localhost:1", True),
        ("127.9.9.9:1", True),
        ("[::1]:1", True),
        ("dns:///localhost:1", True),
        ("unix:/tmp/socket", True),
        ("127.0.0.1:1,127.0.0.1:2", True),
        ("127.0.0.1:1,192.0.2.1:2", False),
        ("localhost.example:1", False),
        ("127.0.0.1.example:1", False),
        ("dns:///train.example:1", False),
        ("0.0.0.0:1", False),
        ("", False),
    ],
)
def test_addresses_of_this_machine(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected


def test_the_operators_token_is_sent_to_its_own_service_only(tmp_path: Path) -> None:
    operator_token(tmp_path)
    assert sent("127.0.0.1:51001") == "of-the-operator"
    assert sent("127.0.0.1:51002") == ""
    assert sent("train.example:51001") == ""
    operator_token(tmp_path, mode=0o644)
    assert sent() == "", "another user may have written it"


@pytest.mark.parametrize(
    ("place", "asked", "expected"),
    [
        ("localhost:51001", "localhost:51001", True),
        ("localhost:51001", "127.0.0.1:51001", True),
        ("localhost:51001", "[::1]:51001", True),
        ("[::]:51001", "localhost:51001", True),
        ("0.0.0.0:51001", "127.0.0.1:51001", True),
        ("[::1]:51001", "ipv6:[::1]:51001", True),
        ("127.0.0.1:51001", "localhost:51001", False),
        ("0.0.0.0:51001", "localhost:51001", False),
        ("127.0.0.1:51001", "127.0.0.2:51001", False),
        ("127.0.0.1:51001", "[::1]:51001", False),
        ("localhost:51001", "127.0.0.1:51001,127.0.0.1:51002", False),
    ],
)
def test_the_operators_token_goes_to_no_address_at_which_another_program_may_listen(
    tmp_path: Path, place: str, asked: str, expected: bool
) -> None:
    operator_token(tmp_path, place)
    assert sent(asked) == ("of-the-operator" if expected else "")


def test_a_client_with_a_certificate_is_not_the_operator(tmp_path: Path) -> None:
    operator_token(tmp_path)
    certified = Connection(HERE, ca="ca.pem", cert="alice.pem", key="alice.key")
    assert Credentials(certified).metadata() == ()
    assert Credentials(certified, "given").metadata() == (("authorization", "Bearer given"),)


def test_stored_tokens_are_private_and_by_address() -> None:
    assert store_token("b:1", "two") is False
    assert store_token("a:1", "one") is False
    assert store_token("a:1", "three") is True
    assert stored_tokens() == {"a:1": "three", "b:1": "two"}
    assert stat.S_IMODE(credentials_path().stat().st_mode) == 0o600
    assert store_token("a:1", None) is True
    assert store_token("a:1", None) is False
    assert stored_tokens() == {"b:1": "two"}


def test_a_file_that_others_may_read_is_refused() -> None:
    store_token(HERE, "stored")
    credentials_path().chmod(0o640)
    with pytest.raises(InvalidRequest, match="other users may read it; chmod 600"):
        sent()


@pytest.mark.parametrize("content", ["secret", "[]", '{"a": 1}', "\xff"])
def test_a_damaged_file_is_refused_without_a_quotation(content: str) -> None:
    store_token(HERE, "stored")
    credentials_path().write_text(content, encoding="latin-1")
    with pytest.raises(InvalidRequest, match="not the file that `trainctl login` writes") as refused:
        sent()
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("token", ["x y z", "x\ny", "é", "x" * 5000, "\x1b"])
def test_what_no_metadata_can_carry_is_refused_without_a_quotation(token: str) -> None:
    with pytest.raises(InvalidRequest, match="the token is not valid") as refused:
        sent(token=token)
    assert token not in str(refused.value)


def test_an_unusable_token_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"token_file: .* cannot be read"):
        sent(file=tmp_path / "missing")
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(InvalidRequest, match="empty; write the token to it"):
        sent(file=tmp_path / "empty")
