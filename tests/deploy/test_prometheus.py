"""deploy/prometheus: rules and their tests by promtool, the dashboard, and real metrics over TLS to a real alert."""

import json
import re
import shutil
import ssl
import subprocess
from contextlib import contextmanager
from urllib.request import urlopen

import pytest
import yaml

from bigkpca.workflows.scheduled.records import metrics_text, now, started_record
from tests.helpers.dask_processes import wait_until
from tests.helpers.files import ROOT
from tests.helpers.s3 import free_ports

PROMETHEUS = ROOT / "deploy" / "prometheus"
DRIFT = {"figure": 0.3, "threshold": 0.2, "outside": 3}
FLAGGED = {"alpha": 0.01, "rows": 9, "count": 3, "share": 1 / 3, "range": [0.0, 0.3]}
MADE = {"rows": [0, 9], "total_rows": 9, "drift": DRIFT, "flagged": FLAGGED}
RECORD = started_record([], status="done", finished=now(), **MADE)
WRITTEN = metrics_text("f.zarr", [RECORD]).decode()
METRICS = set(re.findall(r"^bigkpca_\w+", WRITTEN, re.MULTILINE))  # as runs write them

needs_promtool = pytest.mark.skipif(
    not shutil.which("promtool"), reason="promtool is not installed: apt-get install prometheus"
)


def promtool(*arguments):
    """What promtool prints, which finds nothing wrong."""
    command = ["promtool", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def alerts():
    (group,) = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def panels():
    return json.loads((PROMETHEUS / "dashboard.json").read_text())["panels"]


def queries():
    """Those of the dashboard."""
    return [target["expr"] for panel in panels() for target in panel["targets"]]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A folder with a certificate for `localhost`, its key and its authority."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run([ROOT / "deploy" / "certificates.sh", folder, "localhost"], check=True)
    for made, name in (("tls.key", "key.pem"), ("tls.crt", "cert.pem"), ("ca.crt", "ca.pem")):
        (folder / made).rename(folder / name)
    return folder


def installed(folder, certificate, changes):
    """The files in a folder, with this certificate and these words changed."""
    for file in PROMETHEUS.glob("*.yml"):
        text = file.read_text().replace("/etc/prometheus/tls", str(certificate))
        for old, new in changes.items():
            text = text.replace(old, new)
        (folder / file.name).write_text(text)
    return folder


@pytest.mark.full
@needs_promtool
def test_promtool_accepts_rules_and_configurations_and_each_alert_fires_when_it_should(tmp_path, certificate):
    assert f"{len(alerts())} rules found" in promtool("check", "rules", "--lint-fatal", PROMETHEUS / "alerts.yml")
    promtool("test", "rules", PROMETHEUS / "alerts_test.yml")
    tests = yaml.safe_load((PROMETHEUS / "alerts_test.yml").read_text())["tests"]
    cases = [(case["alertname"], bool(case.get("exp_alerts"))) for test in tests for case in test["alert_rule_test"]]
    assert set(cases) == {(name, fires) for name in alerts() for fires in (True, False)}
    installed(tmp_path, certificate, {})
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


@contextmanager
def running(*command):
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.full
@pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("prometheus-node-exporter")),
    reason="needs a real Prometheus: apt-get install prometheus prometheus-node-exporter",
)
def test_metrics_of_a_run_reach_prometheus_over_tls_and_drift_and_flags_raise_their_alerts(tmp_path, certificate):
    (tmp_path / "bigkpca.prom").write_text(WRITTEN)
    ports = free_ports(2)
    changes = {"features.example.org:9100": f"localhost:{ports[0]}", "1m": "1s", "scrape_timeout: 10s": ""}
    installed(tmp_path, certificate, changes)
    api = f"http://127.0.0.1:{ports[1]}/api/v1"

    def asked(what):
        try:
            with urlopen(f"{api}/{what}", timeout=60) as answer:
                return json.load(answer)["data"]
        except OSError:
            return {}

    exporter = [f"--web.listen-address=127.0.0.1:{ports[0]}", f"--web.config.file={tmp_path}/node-exporter.yml"]
    server = [f"--web.listen-address=127.0.0.1:{ports[1]}", f"--storage.tsdb.path={tmp_path}/tsdb"]
    with (
        running("prometheus-node-exporter", *exporter, f"--collector.textfile.directory={tmp_path}"),
        running("prometheus", *server, f"--config.file={tmp_path}/prometheus.yml"),
    ):
        wait_until(lambda: "BigkpcaFlagged" in json.dumps(asked("alerts")), 200)  # evaluated after drift
        stored = asked("label/__name__/values")
        assert set(stored) >= METRICS
        firing = {alert["labels"]["alertname"] for alert in asked("alerts")["alerts"] if alert["state"] == "firing"}
        assert firing == {"BigkpcaDrift", "BigkpcaFlagged"}
        trusting = ssl.create_default_context(cafile=str(certificate / "ca.pem"))
        with pytest.raises(OSError, match="alert"):  # a client without a certificate of its own
            urlopen(f"https://localhost:{ports[0]}/metrics", timeout=60, context=trusting)
