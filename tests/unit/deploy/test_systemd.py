"""The unit keeps what the process backend promises, and its example of a configuration can be used."""

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE
from training_service.settings.loading import load
from training_service.settings.protection import is_open

FOLDER = Path(__file__).parents[3] / "deploy/systemd"
UNIT = FOLDER / "training-service.service"


@pytest.fixture(scope="module")
def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text())
    return parser


def test_jobs_outlive_the_service(unit: configparser.ConfigParser) -> None:
    service = unit["Service"]
    assert (service["KillMode"], service["OOMPolicy"]) == ("process", "continue")
    # At a restart, each of these options would remove the files, the user or the processes of running jobs.
    for name in (
        "PrivateTmp",
        "PrivateUsers",
        "PrivatePIDs",
        "DynamicUser",
        "RuntimeDirectory",
        "ProcSubset",
    ):
        assert name not in service, name
    assert service["Type"] == "notify"


def test_the_service_has_no_rights_of_root(unit: configparser.ConfigParser) -> None:
    service = unit["Service"]
    assert service["User"] == "training-service"
    assert (service["NoNewPrivileges"], service["CapabilityBoundingSet"]) == ("yes", "")
    assert (service["ProtectSystem"], service["ProtectHome"]) == ("strict", "yes")
    assert f"u {service['User']} " in (FOLDER / "sysusers.conf").read_text()


def test_the_command_and_the_configuration_are_valid(
    unit: configparser.ConfigParser, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path("/var/lib") / unit["Service"]["StateDirectory"]
    settings = load(FOLDER / "config.toml")  # as for `backup` and `restore`
    assert settings.storage.data_dir == folder
    name, _, value = unit["Service"]["Environment"].partition("=")
    monkeypatch.setenv(name, value.replace("%S", "/var/lib"))
    settings = load(FOLDER / "config.toml")
    assert settings.storage.data_dir == folder
    assert not is_open(settings)
    assert unit["Service"]["ExecStart"].endswith(
        "/training-service serve --config /etc/training-service/config.toml"
    )


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    # The program of the unit must exist.
    text = UNIT.read_text().replace("/opt/training-service/bin/training-service", "/bin/true")
    (tmp_path / UNIT.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / UNIT.name)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    about_it = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert about_it == []
