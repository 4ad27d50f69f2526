"""A real Prometheus with the deployed alerts scrapes a real service."""

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.patience import PATIENCE
from tests.support.ports import free_port
from tests.support.prometheus import program
from tests.support.server import Server
from training_service.client import TrainingClient

MONITORING = Path(__file__).parents[2] / "deploy" / "monitoring"
EXPRESSIONS = [
    target["expr"].replace("$__rate_interval", "1m")
    for panel in json.loads((MONITORING / "grafana-dashboard.json").read_text())["panels"]
    for target in panel.get("targets", ())
]
# Panels of internal errors, and of a backend that this service does not use.
EMPTY = [each for each in EXPRESSIONS if "INTERNAL" in each or "training_service_kubernetes" in each]


class Prometheus:
    """A Prometheus server that scrapes every second."""

    def __init__(self, folder: Path, target: str) -> None:
        self.port = free_port()
        scrape = {"job_name": "training-service", "static_configs": [{"targets": [target]}]}
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(MONITORING / "alerts.yaml")],
            "scrape_configs": [scrape],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        command = [program("prometheus"), f"--config.file={folder / 'prometheus.yml'}"]
        command += [f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address=127.0.0.1:{self.port}"]
        with (folder / "prometheus.log").open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log)

    def ask(self, endpoint: str, **parameters: str) -> Any:
        """Return the answer of the API, which the server may give only after its start."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{endpoint}?{urllib.parse.urlencode(parameters)}"
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                    return json.load(answer)["data"]
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def has(self, expression: str) -> bool:
        """Return whether the expression has a result."""
        return bool(self.ask("query", query=expression)["result"])


@pytest.fixture
def prometheus(server: Server, tmp_path: Path) -> Iterator[Prometheus]:
    server.start("--set=metrics.port=0").close()
    address = server.log.read_text().split("metrics at http://")[1].split("/")[0]
    made = Prometheus(tmp_path, address)
    yield made
    made.process.terminate()
    made.process.wait(timeout=PATIENCE)


def test_each_panel_of_the_dashboard_shows_something_and_no_alert_is_raised(
    server: Server, prometheus: Prometheus
) -> None:
    missing = set(EXPRESSIONS) - set(EMPTY)
    with TrainingClient(server.address) as client:
        deadline = time.monotonic() + PATIENCE
        while missing and time.monotonic() < deadline:
            for code in ("0", "3"):  # rates need changing values
                job_id = client.submit("program", "1", "v1", parameters={"EXIT_CODE": code})
                client.wait(job_id, timeout=PATIENCE)
            missing = {each for each in missing if not prometheus.has(each)}
    assert missing == set()
    assert [each for each in EMPTY if prometheus.has(each)] == []
    alerts = prometheus.ask("alerts")["alerts"]  # one late answer makes an alert pending
    assert [alert for alert in alerts if alert["state"] == "firing"] == []
    rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert {rule["health"] for rule in rules} == {"ok"}
