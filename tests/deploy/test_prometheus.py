"""deploy/prometheus: rules and their tests by promtool, and the dashboard."""

import json
import re
import shutil

import pytest
import yaml

from bigkpca.workflows.scheduled.records import metrics_text, now, started_record
from tests.helpers.commands import finished
from tests.helpers.files import ROOT

PROMETHEUS = ROOT / "deploy" / "prometheus"
DRIFT = {"figure": 0.3, "threshold": 0.2, "outside": 3}
FLAGGED = {"alpha": 0.01, "rows": 9, "count": 3, "share": 1 / 3, "range": [0.0, 0.3]}
MADE = {"rows": [0, 9], "total_rows": 9, "drift": DRIFT, "flagged": FLAGGED}
RECORD = started_record([], status="done", finished=now(), **MADE)
WRITTEN = metrics_text("f.zarr", [RECORD]).decode()
METRICS = set(re.findall(r"^bigkpca_\w+", WRITTEN, re.MULTILINE))  # as runs write them


def promtool(*arguments):
    """What promtool prints, which finds nothing wrong."""
    return finished("promtool", *arguments, timeout=250).stdout


def alerts():
    (group,) = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def panels():
    return json.loads((PROMETHEUS / "dashboard.json").read_text())["panels"]


def queries():
    """Those of the dashboard."""
    return [target["expr"] for panel in panels() for target in panel["targets"]]


@pytest.mark.full
@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed: apt-get install prometheus")
def test_promtool_accepts_rules_and_configurations_and_each_alert_fires_when_it_should(tmp_path):
    assert f"{len(alerts())} rules found" in promtool("check", "rules", "--lint-fatal", PROMETHEUS / "alerts.yml")
    promtool("test", "rules", PROMETHEUS / "alerts_test.yml")
    tests = yaml.safe_load((PROMETHEUS / "alerts_test.yml").read_text())["tests"]
    cases = [(case["alertname"], bool(case.get("exp_alerts"))) for test in tests for case in test["alert_rule_test"]]
    assert set(cases) == {(name, fires) for name in alerts() for fires in (True, False)}
    finished(ROOT / "deploy" / "certificates.sh", tmp_path, "localhost")
    for made, name in (("tls.key", "key.pem"), ("tls.crt", "cert.pem"), ("ca.crt", "ca.pem")):
        (tmp_path / made).rename(tmp_path / name)
    for file in PROMETHEUS.glob("*.yml"):
        (tmp_path / file.name).write_text(file.read_text().replace("/etc/prometheus/tls", str(tmp_path)))
    promtool("check", "config", tmp_path / "prometheus.yml")
    promtool("check", "web-config", tmp_path / "node-exporter.yml")
    of_any = [query.replace("$output", ".*") for query in queries()]
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(of_any)]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", tmp_path / "queries.yml")


def test_the_dashboard_names_what_is_written_and_turns_red_with_the_alert():
    for name in ("alerts.yml", "alerts_test.yml", "dashboard.json"):
        named = set(re.findall(r"\bbigkpca_\w+", (PROMETHEUS / name).read_text()))
        assert named == METRICS if name == "dashboard.json" else named <= METRICS
    board = json.loads((PROMETHEUS / "dashboard.json").read_text())
    assert {"uid", "title", "schemaVersion", "templating", "time"} <= set(board)
    assert {variable["name"] for variable in board["templating"]["list"]} == {"datasource", "output"}
    for key in ("id", "title"):
        assert len({panel[key] for panel in panels()}) == len(panels())
    for panel in panels():
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    assert all('{output=~"$output"}' in query for query in queries())
    (panel,) = (panel for panel in panels() if panel["title"] == "Time since the last success")
    assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"][-1]["value"] == 26 * 3600
    assert alerts()["BigkpcaNoSuccess"]["expr"].endswith("> 26 * 3600")
