"""Prometheus, Grafana and kustomize accept the dashboard and the alerts, and each alert fires."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.overlays import container, deployed, kubectl, one
from tests.support.patience import PATIENCE
from tests.support.prometheus import promtool

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "deploy" / "monitoring"
ALERTS: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD = json.loads((MONITORING / "grafana-dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def test_generated_files_are_up_to_date(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, ROOT / "scripts" / "generate-monitoring", tmp_path], check=True, timeout=PATIENCE
    )
    for name in ("grafana-dashboard.json", "operator/rules.yaml"):
        fresh = (tmp_path / name).read_text()
        assert (MONITORING / name).read_text() == fresh, f"run scripts/generate-monitoring: {name} is stale"


def test_the_alerts_are_valid() -> None:
    assert f"SUCCESS: {len(ALERTS)} rules found" in promtool(
        "check", "rules", str(MONITORING / "alerts.yaml")
    )


def test_each_alert_fires_when_it_should_and_not_before() -> None:
    tests = Path(__file__).with_name("alerts.test.yaml")
    promtool("test", "rules", str(tests))
    asked = [each for test in yaml.safe_load(tests.read_text())["tests"] for each in test["alert_rule_test"]]
    fire = {each["alertname"] for each in asked if each.get("exp_alerts")}
    are_silent = {each["alertname"] for each in asked if not each.get("exp_alerts")}
    assert fire == are_silent == {alert["alert"] for alert in ALERTS}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_each_alert_has_a_description_and_a_documented_response(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert set(alert["annotations"]) == {"summary", "description"}
    assert f"**{alert['alert']}.**" in (ROOT / "docs" / "operations.md").read_text()


def test_every_expression_of_the_dashboard_is_promql(tmp_path: Path) -> None:
    expressions = [target["expr"] for panel in PANELS for target in panel["targets"]]
    # Grafana replaces its variable; Prometheus evaluates the rest.
    rules = [
        {"record": f"expression_{index}", "expr": expr.replace("$__rate_interval", "5m")}
        for index, expr in enumerate(expressions)
    ]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"SUCCESS: {len(expressions)} rules found" in promtool(
        "check", "rules", str(tmp_path / "rules.yaml")
    )


def test_the_dashboard_has_consecutive_ids_and_no_overlapping_panels() -> None:
    panels = DASHBOARD["panels"]
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        grid = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_the_dashboard_uses_the_selected_prometheus() -> None:
    (variable,) = DASHBOARD["templating"]["list"]
    assert (variable["name"], variable["type"], variable["query"]) == (
        "datasource",
        "datasource",
        "prometheus",
    )
    for panel in PANELS:
        for each in (panel, *panel["targets"]):
            assert each["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_a_legend_uses_labels_that_its_expression_keeps() -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                grouped = re.findall(r"by \(([^)]*)\)", target["expr"])
                kept = {name.strip() for names in grouped for name in names.split(",")}
                assert label in kept if grouped else label in ("instance", "version"), target


def test_the_components_can_be_added_to_an_overlay(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")  # kustomize accepts only relative paths
    (tmp_path / "mine").mkdir()
    kustomization = {
        "resources": ["../deploy/overlays/production"],
        "components": ["../deploy/monitoring", "../deploy/monitoring/operator"],
    }
    (tmp_path / "mine" / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    command = [kubectl(), "kustomize", str(tmp_path / "mine")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    objects = [each for each in yaml.safe_load_all(done.stdout) if each]

    dashboard = one(objects, "ConfigMap", "training-service-dashboard")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(dashboard["data"]["training-service.json"]) == DASHBOARD

    template, service = deployed(objects), one(objects, "Service")
    ports = {each["name"]: each["containerPort"] for each in container(objects)["ports"]}
    assert template["metadata"]["annotations"]["prometheus.io/port"] == str(ports["metrics"])
    policy = one(objects, "NetworkPolicy", "training-service-metrics")["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert policy["ingress"][0]["ports"] == [{"port": "metrics"}]

    monitor = one(objects, "ServiceMonitor")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["endpoints"] == [{"port": "metrics"}]
    rules = one(objects, "PrometheusRule")["spec"]["groups"]
    assert [rule for group in rules for rule in group["rules"]] == ALERTS
