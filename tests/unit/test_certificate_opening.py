"""Certificates are opened from the settings, and their age is watched."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.certificates import DAY, LOCAL, Authority
from training_service.auth.live import Unusable
from training_service.certificate_opening import Certificates, open_certificates
from training_service.settings.loading import load

NAMES = (*LOCAL, "train.example")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def opened(
    authority: Authority, folder: Path, *, lasts: timedelta = 30 * DAY, reports: dict[str, str] | None = None
) -> Certificates:
    files = authority.issue(*NAMES, lasts=lasts).write(folder, "server")
    tls = {
        "certificate": files.certificate,
        "key": files.key,
        "client_ca": authority.file,
        "client_certificates": "required",
    }
    made = open_certificates(load(flags={"server": {"tls": tls}, "reports": reports or {}}))
    assert made is not None
    return made


def test_without_tls_there_are_none() -> None:
    assert open_certificates(load()) is None


def test_the_end_of_each_certificate_is_known(authority: Authority, tmp_path: Path) -> None:
    ends = opened(authority, tmp_path).ends()
    days = {setting: round((end - datetime.now(UTC)) / DAY) for setting, end in ends.items()}
    assert days == {"server.tls.certificate": 30, "server.tls.client_ca": 100}


def test_a_certificate_that_expires_soon_is_in_the_log_once_a_day(
    authority: Authority, tmp_path: Path
) -> None:
    certificates, now = opened(authority, tmp_path), datetime.now(UTC)
    assert [*certificates.warnings(now)] == []
    soon = now + 17 * DAY
    [warning] = certificates.warnings(soon)
    assert warning.startswith("server.tls.certificate: the certificate expires at 20")
    assert warning.endswith(" UTC; replace the file")
    assert [*certificates.warnings(soon + timedelta(hours=23))] == []
    assert len([*certificates.warnings(soon + timedelta(hours=24))]) == 1
    [expired] = certificates.warnings(soon + 20 * DAY)
    assert "the certificate expired at" in expired


def test_ranks_get_the_authorities_as_text_or_the_word_system(authority: Authority, tmp_path: Path) -> None:
    assert opened(authority, tmp_path).report_ca() == "system"
    given = {"ca": str(authority.file)}
    assert opened(authority, tmp_path, reports=given).report_ca().encode() == authority.certificate


def test_an_address_for_ranks_is_a_name_in_the_certificate(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificates = opened(authority, tmp_path, reports={"ca": str(authority.file)})
    assert certificates.address_for_ranks("127.0.0.1:5") == "127.0.0.1:5"
    assert certificates.address_for_ranks(None) is None
    assert caplog.records == []
    assert certificates.address_for_ranks("host.docker.internal:5") is None
    [record] = caplog.records
    assert "it is not for host.docker.internal, so ranks report by printed lines only" in record.message
    assert "(127.0.0.1, localhost, train.example)" in record.message


def test_ranks_that_may_not_trust_the_certificate_are_in_the_log(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert opened(authority, tmp_path).address_for_ranks("localhost:5") == "localhost:5"
    [record] = caplog.records
    assert record.message.startswith(
        "reports.ca: it is not set, and this machine does not trust server.tls.cert"
    )
    assert "unable to get local issuer certificate" in record.message


def test_the_authority_of_another_certificate_is_refused_for_ranks(
    authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other")
    with pytest.raises(Unusable) as refused:
        opened(authority, tmp_path, reports={"ca": str(other.file)})
    assert str(refused.value) == (
        f"reports.ca: {other.file}: it does not have the authority of server.tls.certificate "
        "(unable to get local issuer certificate)"
    )


def test_a_configured_address_that_is_not_in_the_certificate_is_refused(
    authority: Authority, tmp_path: Path
) -> None:
    listen = {"listen": "127.0.0.1:0"}
    opened(authority, tmp_path, reports={**listen, "address": "train.example:51002"})
    with pytest.raises(
        Unusable, match=r"the certificate is not for other.example, the host of reports.address"
    ):
        opened(authority, tmp_path, reports={**listen, "address": "other.example:51002"})
