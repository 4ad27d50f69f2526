"""A client of an API server with scripted answers."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from job_tracker.backends.kubernetes.access import Access
from job_tracker.backends.kubernetes.client import KubernetesClient, Patience
from tests.support.scripted_api import PATIENT, SCRIPTED, Scripted


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Scripted]:
    scripted = Scripted()
    app = web.Application()
    app[SCRIPTED] = scripted
    app.router.add_route("*", "/{path:.*}", scripted.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": f"http://{host}:{port}"}}],
        "users": [{"name": "x", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    yield scripted
    scripted.closing.set()
    await runner.cleanup()


@pytest.fixture
def patience() -> Patience:
    """The limits of the client: an answer on a busy machine is never too late."""
    return PATIENT


@pytest.fixture
async def client(server: Scripted, tmp_path: Path, patience: Patience) -> AsyncIterator[KubernetesClient]:
    def measured(request: str, code: str, seconds: float) -> None:
        assert 0 <= seconds < 60
        server.counted.append((request, code))

    access = Access(kubeconfig=tmp_path / "kubeconfig")
    made = KubernetesClient(access, "here", patience=patience, on_request=measured)
    yield made
    await made.close()
