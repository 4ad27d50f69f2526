"""The metrics and the log of a real service, as an operator sees them."""

import json
import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from job_tracker.domain.job import JobState
from tests.support.patience import PATIENCE
from tests.support.server import Server
from training_service._generated import training_service_pb2 as pb
from training_service.client import TrainingClient

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "deploy" / "monitoring"
SECRET, TENANT = "hunter2-of-the-storage", "a-name-that-a-tenant-chose"
FLAGS = (
    "--set=metrics.port=0",
    "--set=logging.format=json",
    "--set=logging.level=DEBUG",
    "--set=store.lease_seconds=60",  # a second term would repeat a launch, and so change the counted calls
    f"--set=process.secret_environment.AWS_SECRET_ACCESS_KEY={SECRET}",
)


def lines_of(server: Server) -> list[dict[str, Any]]:
    """Return the records of the log, one per line."""
    return [json.loads(line) for line in server.log.read_text().splitlines()]


def scraped(server: Server) -> str:
    (url,) = [
        line["message"].removeprefix("metrics at ")
        for line in lines_of(server)
        if line["message"].startswith("metrics at ")
    ]
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return str(answer.read().decode())


def submit(client: TrainingClient, **parameters: str) -> int:
    """Submit a job and return its id."""
    return client.submit("program", "1", "v1", name=TENANT, parameters=parameters)


@pytest.fixture
def worked(server: Server) -> Iterator[Server]:
    """A service that has had a job of each outcome, one with a second attempt."""
    with server.start(*FLAGS) as client:
        cancelled = submit(client, RUN_SECONDS="forever")
        may_end = server.folder / "may-end"  # after the service has seen that the jobs run
        ended = [submit(client, UNTIL_FILE=str(may_end), EXIT_CODE=code) for code in ("0", "3")]
        for job_id in (cancelled, *ended):
            next(status for status in client.watch(job_id) if status.status == pb.running)
        may_end.touch()
        for job_id in ended:
            client.wait(job_id, timeout=PATIENCE)
        client.cancel(cancelled)
        client.wait(cancelled, timeout=PATIENCE)
        yield server


def exported(text: str) -> set[str]:
    """Return the names of all existing and possible samples."""
    names = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\w+)$", text, flags=re.MULTILINE):
        ends = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        names |= {name + end for end in ends}
    return names


def named(expression: str) -> set[str]:
    """Return the names of the metrics in an expression."""
    return set(re.findall(r"\b(?:training_service|process)_\w+", expression))


def test_dashboard_and_alerts_use_only_exported_metrics_and_the_documents_list_all_of_them(
    worked: Server,
) -> None:
    names = exported(scraped(worked))
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    alerts = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    wanted = {
        name
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
        for name in named(target["expr"])
    } | {name for group in alerts["groups"] for rule in group["rules"] for name in named(rule["expr"])}
    assert wanted - names == set()
    explained = named((ROOT / "docs" / "operations.md").read_text())
    ours = {re.sub(r"_(bucket|sum|count)$", "", name) for name in names if name.startswith("tr")}
    assert ours - explained == set()


def test_a_scrape_counts_jobs_by_outcome(worked: Server) -> None:
    text = scraped(worked)
    values = {
        (sample.name.removeprefix("training_service_"), *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    for outcome in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED):
        assert values["jobs_ended_total", outcome] == 1
        assert values["run_seconds_count", outcome] == 1
        assert values["jobs", outcome] == 1
    assert values["attempts_total",] == values["launch_seconds_count",] == 3
    assert values["queue_wait_seconds_count",] == 3
    assert values["failures_total", "crashed"] == 1
    assert values["leader",] == values["store_up",] == 1
    assert values["outside_calls_total", "backend", "launch", "ok"] == 3
    assert values["outside_calls_total", "ok", "store", "submit"] == 3
    assert ("event_loop_lag_seconds_count",) in values
    assert values["process_resident_memory_bytes",] > 0


def test_no_text_of_a_tenant_is_in_the_metrics(worked: Server) -> None:
    assert TENANT not in scraped(worked)


def test_every_line_about_a_job_has_its_id_and_none_has_a_secret(worked: Server) -> None:
    worked.end(signal.SIGTERM)  # the line of the last change may come after the answer to its client
    lines, text = lines_of(worked), worked.log.read_text()
    assert SECRET not in text
    moves = [line for line in lines if re.match(r"job \d+: \w+ -> ", line["message"])]
    assert len(moves) == 9  # launch, running and end of each
    for line in lines:
        for job_id in re.findall(r"\bjob (\d+)\b", line["message"]):
            assert line["job"] == int(job_id), line
    assert {(line["job"], line["attempt"]) for line in moves} == {(1, 1), (2, 1), (3, 1)}
    calls = [line for line in lines if line["logger"] == "training_service.access"]
    for name, jobs in (("Train", [1, 2, 3]), ("CancelTraining", [1])):
        assert sorted(line["job"] for line in calls if f"/{name} OK" in line["message"]) == jobs
    assert all(re.fullmatch("[0-9a-f]{32}", line["request_id"]) for line in calls)
