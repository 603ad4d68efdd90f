"""Records of runs, metrics, and what is told when something is wrong."""

import base64
import json
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from prometheus_client.parser import text_string_to_metric_families

import bigkpca
from bigkpca.errors import DataError, SpecError
from bigkpca.storage import job_output, run_records
from bigkpca.workflows.scheduled import records
from tests.helpers.commands import run, run_apart
from tests.helpers.nights import JOB, Night, some_rows
from tests.helpers.progress import Recorder


@pytest.fixture
def night(tmp_path):
    night = Night.made(tmp_path / "job", metrics="bigkpca.prom")
    night.append(some_rows(70))
    return night


def metrics(night):
    text = Path(night.folder, "bigkpca.prom").read_text()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    assert {sample.labels["output"] for sample in samples} == {night.out}
    return {sample.name: sample.value for sample in samples}


@pytest.fixture
def gateway():
    """A server that answers as a Pushgateway does."""
    with Gateway(("127.0.0.1", 0), Pushed) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Gateway(HTTPServer):
    """Keeps what was pushed, and may refuse it."""

    status = 200

    def __init__(self, *args):
        super().__init__(*args)
        self.pushed = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Pushed(BaseHTTPRequestHandler):
    server: Gateway

    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.pushed.append((self.path, body.decode()))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_): ...


def test_metrics_are_sent_to_a_gateway_also_of_a_run_that_fails(night, gateway):
    night.set(push_metrics=gateway.url)
    (record,) = night.run()
    assert record["message"] is None
    output = base64.urlsafe_b64encode(night.out.encode()).decode()
    ((path, text),) = gateway.pushed
    assert path == f"/metrics/job/bigkpca/output@base64/{output}"  # a group for each output
    assert f'bigkpca_rows{{output="{night.out}"}} 70.0' in text
    assert f'bigkpca_last_run_exit_code{{output="{night.out}"}} 0.0' in text
    night.set(JOB.replace("components = 3", "components = 2"), push_metrics=gateway.url)
    with pytest.raises(SpecError):
        night.run()
    assert f'bigkpca_last_run_exit_code{{output="{night.out}"}} 2.0' in gateway.pushed[-1][1]
    assert len(gateway.pushed) == 2


def test_a_gateway_that_refuses_or_is_down_is_a_warning_in_the_record(night, gateway):
    night.set(push_metrics=gateway.url)
    gateway.status = 400
    told, sent = Recorder(), "metrics could not be sent to the address of run.push_metrics: "
    assert night.run(told)[0]["message"] == f"{sent}HTTP status 400"
    assert f"warning: {sent}HTTP status 400" in told.notes
    gateway.server_close()
    (record,) = night.run()
    assert (record["status"], record["exit_code"]) == ("nothing new", 0)
    assert record["message"].startswith(f"{sent}[Errno ")
    assert [each["message"][: len(sent)] for each in bigkpca.history(night.out)] == [sent, sent]


def test_metrics_of_a_run_that_was_cut_off_after_it_published_are_sent_by_the_next(night, gateway, monkeypatch):
    night.set(push_metrics=gateway.url)
    with monkeypatch.context() as patched:
        patched.setattr(run_records, "append_record", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            night.run(full=True)
    gateway.pushed.clear()
    night.run(full=True)
    assert f'bigkpca_rows{{output="{night.out}"}} 70.0' in gateway.pushed[0][1]


def test_a_record_says_what_a_run_did(night):
    before = datetime.now(UTC)
    (record,) = night.run()
    digest = bigkpca.storage.models.model_digest(bigkpca.load(night.model))
    assert record["model"] == {"path": night.model, "digest": digest}
    assert len(record["input"].pop("tail")) == 1  # the stamp of the last chunk
    assert record["input"] == {"path": night.rows, "dtype": "<f4", "columns": 4, "gaps": []}
    assert record["bytes"] == {"read": 70 * 16, "written": 70 * 12}
    assert record["seconds"]["total"] >= record["seconds"]["fit"] + record["seconds"]["extract"] - 0.01 > 0
    assert record["packages"]["bigkpca"] == bigkpca.__version__
    assert before - timedelta(seconds=1) <= datetime.fromisoformat(record["started"]) <= datetime.now(UTC)
    (kept,) = bigkpca.history(night.out)
    del kept["input"]["tail"]
    assert kept == record
    assert len(Path(night.out, "runs.jsonl").read_text().splitlines()) == 1


def test_equal_rows_have_equal_digests_of_features(night, tmp_path):
    other = Night.made(tmp_path / "other")
    other.append(some_rows(40))
    night.run()
    other.run(rows=":40")
    assert night.run()[0]["features_digest"] is None
    other.append(some_rows(70)[40:])
    bigkpca.history(other.out)
    again = Night.made(tmp_path / "again")
    again.append(some_rows(70))
    assert again.run()[0]["features_digest"] == bigkpca.history(night.out)[0]["features_digest"]


def test_metrics_tell_of_the_last_run_and_the_last_success(night):
    night.run()
    found = metrics(night)
    assert found["bigkpca_last_run_new_rows"] == found["bigkpca_rows"] == 70
    assert found["bigkpca_features_version"] == 1
    assert found["bigkpca_last_run_exit_code"] == found["bigkpca_failed_runs_total"] == 0
    success = found["bigkpca_last_success_timestamp_seconds"]
    bad = some_rows(9)
    night.append(bad)
    night.set(JOB.replace("components = 3", "components = 2"), metrics="bigkpca.prom")
    with pytest.raises(SpecError):
        night.run()
    found = metrics(night)
    assert found["bigkpca_last_success_timestamp_seconds"] == success <= found["bigkpca_last_run_timestamp_seconds"]
    assert (found["bigkpca_last_run_exit_code"], found["bigkpca_failed_runs_total"]) == (2, 1)
    assert (found["bigkpca_rows"], found["bigkpca_last_run_new_rows"]) == (70, 0)


def test_metrics_that_cannot_be_written_fail_the_command_before_anything_is_computed(night):
    night.set(metrics="nowhere/bigkpca.prom")
    with pytest.raises(SpecError, match=r"metrics cannot be written to .*nowhere/bigkpca\.prom"):
        night.run()
    assert not Path(night.model).exists()
    night.set(metrics="bigkpca.prom")
    assert night.run()[0]["status"] == "done"
    assert night.scores().shape == (70, 3)


def test_lines_of_the_records_that_do_not_parse_are_kept_and_told(night):
    night.run()
    file = Path(night.out, "runs.jsonl")
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"run": 2, "sta')  # as a full disk may leave it
    night.append(some_rows(9))
    night.run()
    assert file.read_bytes().startswith(whole + b'{"run": 2, "sta\n{"run": 2, ')
    told = Recorder()
    assert [record["run"] for record in bigkpca.history(night.out, progress=told)] == [1, 2]
    assert told.notes == [f"{night.out}/runs.jsonl: lines that do not parse are left out: 2"]
    file.write_bytes(b"\xff\x00[1]\n\n7\n")
    night.append(some_rows(9))
    assert night.run()[0]["run"] == 3  # the manifest knows of the run before
    assert night.scores().shape == (88, 3)


def test_records_that_are_gone_are_begun_anew(night):
    night.run()
    Path(night.out, "runs.jsonl").unlink()
    night.append(some_rows(9))
    night.run()
    assert [record["rows"] for record in bigkpca.history(night.out)] == [[0, 70], [70, 79]]


def test_a_clock_that_went_backwards_is_told(night, monkeypatch):
    night.run()
    monkeypatch.setattr(records, "now", lambda: "2020-01-01T00:00:00+00:00")
    night.append(some_rows(9))
    (record,) = night.run()
    assert record["status"] == "done"
    assert record["message"].startswith("the clock of this machine says 2020-01-01T00:00:00+00:00, and an earlier run")
    assert night.run()[0]["run"] == 3


def test_a_run_that_fails_is_recorded_and_the_next_one_goes_on(night):
    bad = some_rows(9)
    bad[4, 2] = float("nan")
    night.run()
    night.append(some_rows(9))
    import zarr

    night.forget_digests()
    array = zarr.open_array(f"{night.rows}/x", mode="r+")
    kept = array[70:79]
    array[70:79] = bad
    with pytest.raises(DataError, match="row 74, column 2"):
        night.run()
    assert night.scores().shape == (70, 3)
    failed = bigkpca.history(night.out)[-1]
    assert (failed["status"], failed["exit_code"], failed["version"]) == ("failed", 3, None)
    assert "row 74, column 2" in failed["message"]
    array[70:79] = kept
    night.run()
    assert night.scores().shape == (79, 3)


@pytest.mark.usefixtures("quiet_signals")
def test_commands_print_runs_plans_and_their_history(night):
    plan = run("run", night.job, "--plan", "--json")
    assert json.loads(plan.stdout)["action"] == "fit a model, and extract features"
    assert not Path(night.out).exists()
    done = run("run", night.job, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"] == [0, 70]
    assert "nothing new" in run("run", night.job).stdout
    night.append(some_rows(30))
    plan = json.loads(run("run", night.job, "--plan", "--json").stdout)
    assert (plan["action"], plan["rows"], plan["version"]) == ("extract features", [70, 100], 1)
    assert "0 to 99" in run("run", night.job, "--full").stdout
    assert "from version 2 to version 1" in run("rollback", night.out).stdout
    table = run("history", night.out).stdout.splitlines()
    assert [line.split()[0] for line in table] == ["run", "1", "2", "3", "4"]
    assert [json.loads(line)["run"] for line in run("history", night.out, "--json").stdout.splitlines()] == [1, 2, 3, 4]
    assert "last run" in run("info", night.out).stdout


def test_a_command_says_what_is_wrong_in_a_few_lines(night):
    for command, code, told in [
        (("run",), 2, "bigkpca: name a job file: bigkpca run JOB.toml"),
        (("run", night.job, "--rows", "900:"), 2, "bigkpca: rows 0 to 899 are not extracted yet"),
        (("history", night.folder), 2, "is not a bigkpca|but is not a bigkpca"),
        (("rollback", f"{night.folder}/none"), 2, "does not exist"),
    ]:
        done = run_apart(*command)
        assert done.returncode == code
        assert any(each in done.stderr for each in told.split("|"))
        assert "Traceback" not in done.stderr


def test_lines_about_a_run_can_be_json(night):
    night.set(log="json")
    done = run_apart("run", night.job)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert any(line["message"].startswith("extracting features: 70 rows") for line in lines)
    assert all(datetime.fromisoformat(line["time"]).tzinfo for line in lines)


@pytest.mark.usefixtures("quiet_signals")
def test_warnings_are_shown_also_when_quiet(night):
    night.run()
    night.append(some_rows(300, 5) * 30)
    done = run("run", night.job, "-q")
    assert done.exit_code == 0
    assert done.stderr.startswith("warning: drift 0.")
    assert done.stderr.count("\n") == 1


@pytest.mark.usefixtures("quiet_signals")
def test_errors_are_json_where_all_lines_are(night):
    night.run()
    night.set(log="json", on_drift="fail")
    night.append(some_rows(300, 5) * 30)
    done = run("run", night.job)
    *_, last = [json.loads(line) for line in done.stderr.splitlines()]
    assert (last["exit_code"], done.exit_code) == (3, 3)
    assert last["message"].startswith("drift 0.")


def test_a_command_by_hand_that_cannot_be_done_is_no_failure_of_the_job(night):
    night.run()
    with pytest.raises(SpecError, match="rows up to 900 are asked for"):
        night.run(rows="0:900")
    assert [record["status"] for record in bigkpca.history(night.out)] == ["done"]


@pytest.mark.usefixtures("quiet_signals")
def test_history_before_the_first_run_ended_says_so(night):
    job_output.prepare(night.out)
    assert run("history", night.out).stdout == "no run has ended yet\n"
