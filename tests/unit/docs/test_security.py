"""docs/security.md: its commands make certificates and settings that a service accepts."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography import x509

from training_service.auth.pem_files import PemFile
from training_service.auth.tls import read_tls
from training_service.settings.loading import load

PAGE = Path(__file__).parents[3] / "docs" / "security.md"
BLOCKS = re.findall(r"^```\w*\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="there is no openssl")


def ran(folder: Path, start: str) -> None:
    """Run the commands of the block that has this text, up to the first `serve` or `kubectl`."""
    [block] = [block for block in BLOCKS if start in block]
    commands = re.split("^(?:training-service serve|kubectl)", block, flags=re.MULTILINE)[0]
    commands = commands.replace("rsa:3072", "rsa:2048")  # faster
    subprocess.run(["bash", "-eu", "-c", commands], cwd=folder, check=True, capture_output=True)


def test_the_certificate_of_the_first_example_is_accepted(tmp_path: Path) -> None:
    ran(tmp_path, "-keyout server.key -out server.pem")
    files = [tmp_path / name for name in ("server.pem", "server.key")]
    tls = read_tls(*(PemFile("server.tls", file) for file in files))
    assert tls.covers("localhost")


def test_the_certificate_of_kubernetes_is_for_ranks_and_callers(tmp_path: Path) -> None:
    ran(tmp_path, "DNS:training-service.training.svc")
    files = [PemFile("server.tls", tmp_path / name) for name in ("server.pem", "server.key", "ca.pem")]
    tls = read_tls(*files)
    assert all(map(tls.covers, ("training-service", "training-service.training.svc", "localhost")))


def test_a_secret_is_replaced_by_one_with_the_same_files() -> None:
    made, replaced = (
        {*re.findall(r"training-service-tls|--from-file=\S+", block)}
        for block in BLOCKS
        if "create secret generic training-service-tls" in block
    )
    assert made == replaced
    assert len(made) == 4


def test_the_operator_of_the_second_example_is_the_name_in_its_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(tmp_path, "issue alice")
    monkeypatch.chdir(tmp_path)
    settings = load(tmp_path / "service.toml")
    alice = x509.load_pem_x509_certificate((tmp_path / "alice.pem").read_bytes())
    assert settings.auth.operators == {alice.subject.rfc4514_string()}
    files = [settings.server.tls.certificate, settings.server.tls.key, settings.server.tls.client_ca]
    read_tls(*(PemFile("server.tls", tmp_path / str(file)) for file in files))
