"""The component deploy/optional/client-certificates, after that of TLS, lets only callers with certificates connect."""

from pathlib import Path

import pytest

from tests.support import schemas
from tests.support.overlays import files_are_mounted_from_secrets, settings_in_pod, with_components


@pytest.mark.parametrize("overlay", ["kind", "debian", "production"])
def test_client_certificates_are_required_and_their_authorities_are_mounted(
    overlay: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = with_components(tmp_path, overlay, "tls", "client-certificates")
    settings = settings_in_pod(objects, tmp_path, monkeypatch)
    tls = settings.server.tls
    assert tls.client_certificates == "required"
    files = (tls.certificate, tls.key, tls.client_ca, settings.reports.ca)
    assert files_are_mounted_from_secrets(objects, files)
    for each in objects if overlay != "debian" else []:  # Kubernetes 1.20, for which there are no schemas
        schemas.check(each, schemas.VERSIONS[0])
