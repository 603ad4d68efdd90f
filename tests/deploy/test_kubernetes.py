"""deploy/kubernetes: valid for Kubernetes and for the Dask operator, and what its parts say of each other."""

import json
import os
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatchcase
from functools import cache
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import urlopen

import pytest
import yaml
from dask.utils import parse_bytes, parse_timedelta
from distributed import Client, Security

from bigkpca.spec.job import read_job
from tests.helpers.commands import finished
from tests.helpers.custom_resources import schema_of
from tests.helpers.dask_processes import wait_until
from tests.helpers.files import ROOT
from tests.helpers.nights import Night, some_rows
from tests.helpers.proxy import proxy
from tests.helpers.s3 import BUCKET, free_ports, program

FOLDER = ROOT / "deploy" / "kubernetes"
JOB_TEXT = (FOLDER / "nightly.toml").read_text()
JOB = tomllib.loads(JOB_TEXT)
README = (FOLDER / "README.md").read_text()
TEMPLATES = list(yaml.safe_load_all((FOLDER / "secrets.template.yaml").read_text()))  # the Secrets that a user makes
IMAGE_SETTINGS = yaml.safe_load((ROOT / "deploy" / "docker" / "dask.yaml").read_text())["distributed"]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@cache
def rendered():
    """All documents; skips the test without kubectl."""
    return tuple(yaml.safe_load_all(finished(program("kubectl"), "kustomize", FOLDER).stdout))


def of_kind(kind):
    return [document for document in rendered() if document["kind"] == kind]


def only(kind):
    """The one document of a kind."""
    (found,) = of_kind(kind)
    return found


def pods():
    """Scheduler and worker with the labels that the operator gives them, and the job; each has one container."""
    cluster, job = only("DaskCluster"), only("CronJob")["spec"]["jobTemplate"]["spec"]["template"]
    found = {"nightly": (job["metadata"]["labels"], job["spec"])}
    for name in ("scheduler", "worker"):
        labels = {"dask.org/cluster-name": cluster["metadata"]["name"], "dask.org/component": name}
        found[name] = labels, cluster["spec"][name]["spec"]
    return {
        name: SimpleNamespace(labels=labels, spec=spec, container=spec["containers"][0])
        for name, (labels, spec) in found.items()
    }


def option(container, name):
    """What follows an option in the command of a container."""
    return container["args"][container["args"].index(name) + 1]


def selected(selector):
    """The names of the pods that a selector of `matchLabels` takes."""
    assert set(selector) <= {"matchLabels"}
    return {name for name, pod in pods().items() if selector.get("matchLabels", {}).items() <= pod.labels.items()}


@pytest.mark.full
def test_what_is_rendered_is_valid_for_kubernetes_and_the_operator():
    ours = [document for document in rendered() if "dask.org" not in document["apiVersion"]]
    made = [{"kind": "Pod", "metadata": {"labels": pod.labels}, "spec": pod.spec} for pod in pods().values()]
    made += [{"kind": "Service", "spec": only("DaskCluster")["spec"]["scheduler"]["service"]}]
    made = [{"apiVersion": "v1"} | each for each in made]
    for version, document in product(("1.33", "1.37"), [*ours, *made, *TEMPLATES]):
        pytest.importorskip("kubernetes_validate").validate(document, version, strict=True)
    jsonschema = pytest.importorskip("jsonschema")
    for kind in ("DaskCluster", "DaskAutoscaler"):
        jsonschema.validate(only(kind), schema_of(kind))
    with pytest.raises(jsonschema.ValidationError, match="'least' was unexpected"):  # which the operator would drop
        jsonschema.validate({"spec": {**only("DaskAutoscaler")["spec"], "least": 2}}, schema_of("DaskAutoscaler"))


def test_a_night_never_runs_twice_and_is_tried_again_where_that_helps():
    night = only("CronJob")["spec"]
    job = night["jobTemplate"]["spec"]
    assert night["concurrencyPolicy"] == "Forbid"
    assert job["template"]["spec"]["restartPolicy"] == "Never"  # else exit codes have no policy
    assert night["startingDeadlineSeconds"] + job["activeDeadlineSeconds"] < 24 * 3600
    fails, ignores = job["podFailurePolicy"]["rules"]  # others count as one of the tries
    codes = {"containerName": "nightly", "operator": "In", "values": [1, 2, 3, 4, 7]}
    assert fails == {"action": "FailJob", "onExitCodes": codes}
    assert ignores == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert job["backoffLimit"] >= 3
    assert pods()["nightly"].spec["terminationGracePeriodSeconds"] >= 3 * 10  # tests of SIGTERM allow 10 seconds
    # A Job can have no other kind of budget than the first. The scheduler has none: it runs by day, too.
    budgets = [each["spec"] for each in of_kind("PodDisruptionBudget")]
    found = [(selected(each["selector"]), each.get("minAvailable"), each.get("maxUnavailable")) for each in budgets]
    assert sorted(found, key=str) == [({"nightly"}, 1, None), ({"worker"}, None, 1)]


def test_job_workers_and_autoscaler_reach_the_scheduler_by_its_name():
    cluster, scaler = only("DaskCluster"), only("DaskAutoscaler")["spec"]
    name, service = cluster["metadata"]["name"], cluster["spec"]["scheduler"]["service"]
    ports = {port["name"]: port["port"] for port in service["ports"]}
    address = f"tls://{name}-scheduler:{ports['tcp-comm']}"  # the operator's name for it
    assert JOB["run"]["scheduler"] == pods()["worker"].container["args"][2] == address
    assert selected({"matchLabels": service["selector"]}) == {"scheduler"}
    assert f"certificates.sh tls {name}-scheduler" in README
    assert (scaler["cluster"], scaler["minimum"]) == (name, cluster["spec"]["worker"]["replicas"]) == (name, 0)
    # The operator removes the workers that the scheduler names.
    assert option(pods()["worker"].container, "--name") == "$(DASK_WORKER_NAME)"


@pytest.mark.full
def test_the_scheduler_tells_the_operator_how_many_workers_it_needs_though_it_has_tls(tmp_path):
    """With the command and the variables of its pod, and the request of the Dask operator."""
    finished(ROOT / "deploy" / "certificates.sh", tmp_path, "bigkpca-scheduler")
    text = (ROOT / "deploy" / "docker" / "dask.yaml").read_text().replace("/etc/bigkpca/tls", str(tmp_path))
    (tmp_path / "dask.yaml").write_text(text)
    container, (port, http) = pods()["scheduler"].container, free_ports(2)
    local = {"8786": str(port), ":8787": f"127.0.0.1:{http}"}
    given = {each["name"]: each["value"] for each in container["env"]}
    env = {**os.environ, **given, "DASK_CONFIG": str(tmp_path / "dask.yaml")}
    ca, cert, key = (str(tmp_path / name) for name in ("ca.crt", "tls.crt", "tls.key"))
    tls = Security(tls_ca_file=ca, tls_client_cert=cert, tls_client_key=key)

    def wanted():
        with urlopen(f"http://127.0.0.1:{http}/api/v1/adaptive_target", timeout=60) as answer:
            return json.load(answer)["workers"]

    command = [sys.executable, "-m", *(local.get(each, each) for each in container["args"])]
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as scheduler:
        try:
            with Client(f"tls://127.0.0.1:{port}", security=tls, set_as_default=False, timeout="60s") as client:
                assert wanted() == 0
                waiting = client.submit(os.getpid, pure=False)
                wait_until(lambda: wanted() == 1)
                waiting.cancel()
        finally:
            scheduler.kill()


def sources(pod):
    """The ConfigMaps and the Secrets that a pod reads, as variables or files."""
    refs = [*pod.container.get("envFrom", []), *pod.spec["volumes"]]
    maps = {name for ref in refs for key in ("configMapRef", "configMap") if (name := ref.get(key, {}).get("name"))}
    named = [ref.get("secretRef", {}).get("name") or ref.get("secret", {}).get("secretName") for ref in refs]
    return maps, set(filter(None, named))


def variables(pod):
    """The environment variables that a pod's ConfigMaps and Secrets set."""
    maps = {each["metadata"]["name"]: each["data"] for each in of_kind("ConfigMap")}
    keys = maps | {each["metadata"]["name"]: each["stringData"] for each in TEMPLATES}
    return {key for each in pod.container["envFrom"] for ref in each.values() for key in keys[ref["name"]]}


def test_all_that_a_pod_names_is_rendered_or_a_secret_of_the_readme_and_the_job_has_its_variables():
    for pod in pods().values():
        maps, secrets = sources(pod)
        assert maps <= {each["metadata"]["name"] for each in of_kind("ConfigMap")}
        assert pod.spec["serviceAccountName"] == only("ServiceAccount")["metadata"]["name"]
        for secret in secrets:
            (template,) = [each for each in TEMPLATES if each["metadata"]["name"] == secret]
            assert f"create secret generic {secret} " in README
            assert [key for key in template["stringData"] if key not in README] == []
        assert "imagePullSecrets" not in pod.spec  # which would replace those of the account
    (secret,) = only("ServiceAccount")["imagePullSecrets"]
    assert f"create secret docker-registry {secret['name']} " in README
    assert of_kind("Secret") == []  # to apply it again would undo what a user made
    assert {value for each in TEMPLATES for value in each["stringData"].values()} == {""}
    assert {each["metadata"]["namespace"] for each in TEMPLATES} == {only("Namespace")["metadata"]["name"]}
    nightly = pods()["nightly"]
    (job,) = [each for each in of_kind("ConfigMap") if "nightly.toml" in each["data"]]
    mounts = {mount["name"]: mount["mountPath"] for mount in nightly.container["volumeMounts"]}
    assert job["data"]["nightly.toml"] == JOB_TEXT
    assert nightly.container["args"] == ["bigkpca", "run", f"{mounts['job']}/nightly.toml"]
    assert set(re.findall(r"\$\{(\w+)\}", JOB_TEXT)) <= variables(nightly)
    assert variables(nightly) == variables(pods()["worker"])  # workers read and write themselves
    read_job(FOLDER / "nightly.toml", {"BUCKET": "lake"})


def test_pods_have_no_rights_and_are_pinned_and_their_memory_fits_the_job():
    tls = IMAGE_SETTINGS["comm"]["tls"]
    files = {tls["ca-file"], *(path for role in ("scheduler", "worker", "client") for path in tls[role].values())}
    (certificates,) = [each["stringData"] for each in TEMPLATES if each["metadata"]["name"] == "bigkpca-tls"]
    assert only("Namespace")["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}
    closed = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    for spec, container in ((pod.spec, pod.container) for pod in pods().values()):
        found = spec["securityContext"]
        assert (found["runAsNonRoot"], found["runAsUser"]) == (True, 10001)  # as in the Dockerfile
        assert found["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert container["securityContext"] == closed
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert mounts["tmp"] == "/tmp"
        assert {f"{mounts['tls']}/{key}" for key in certificates} == files  # where Dask looks for them
        assert container["image"] == f"registry.example.org/bigkpca:{VERSION}"
    planned, worker = parse_bytes(JOB["run"]["memory"]), pods()["worker"].container
    for container in (worker, pods()["nightly"].container):
        assert 1.25 * planned <= parse_bytes(container["resources"]["limits"]["memory"])  # one process in each
    limits = worker["resources"]["limits"]
    assert planned < parse_bytes(option(worker, "--memory-limit")) < 0.9 * parse_bytes(limits["memory"])
    assert option(worker, "--nthreads") == limits["cpu"]
    # A worker that hangs is not ended before the scheduler gives it up.
    alive, patience = worker["livenessProbe"], parse_timedelta(IMAGE_SETTINGS["scheduler"]["worker-ttl"])
    assert alive["periodSeconds"] * alive["failureThreshold"] >= patience


def peers(rule, side):
    """Who a rule of a NetworkPolicy lets through: our pods, namespaces and addresses, or everybody."""
    for peer in rule.get(side, [{}]):
        yield from selected(peer["podSelector"]) if "podSelector" in peer else ()
        yield from peer.get("namespaceSelector", {}).get("matchLabels", {}).values()
        yield from peer.get("ipBlock", {}).values()
        if not peer:
            yield "everybody"


def test_only_the_job_and_workers_reach_the_scheduler():
    ways = {"ingress": set(), "egress": set()}
    for policy in of_kind("NetworkPolicy"):
        spec = policy["spec"]
        assert spec["policyTypes"] == ["Ingress", "Egress"]  # what no rule lets through is denied
        for way, side in (("ingress", "from"), ("egress", "to")):
            for rule in spec.get(way, []):
                ports = [each["port"] for each in rule["ports"]]
                ways[way] |= set(product(selected(spec["podSelector"]), peers(rule, side), ports))
    assert {} in [policy["spec"]["podSelector"] for policy in of_kind("NetworkPolicy")]  # all pods
    assert ways["ingress"] == {
        ("scheduler", "worker", 8786),
        ("scheduler", "nightly", 8786),
        ("scheduler", "dask-operator", 8787),
        ("worker", "scheduler", 8788),
        ("worker", "worker", 8788),
    }
    outside = {("everybody", 443), ("everybody", 53), ("169.254.170.23/32", 80)}  # names, storage and credentials
    inside = {(source, to, port) for to, source, port in ways["ingress"] if source in pods()}
    assert ways["egress"] == inside | {(name, *each) for name in ("worker", "nightly") for each in outside}


POLICY = json.loads((FOLDER / "bucket-policy.json").read_text())["Statement"]
ACTIONS = {"GET": "s3:GetObject", "HEAD": "s3:GetObject", "PUT": "s3:PutObject", "DELETE": "s3:DeleteObject"}


def listed(value):
    return [value] if isinstance(value, str) else value


ALLOWED = {pair for each in POLICY for pair in product(listed(each["Action"]), listed(each["Resource"]))}


def allowed(action, resource):
    """Whether the policy allows an action on a bucket, or on a key in one."""
    return any(action == known and fnmatchcase(resource, pattern) for known, pattern in ALLOWED)


def asked_for(method, url):
    """The action that a request needs, and the key; none where it is about the bucket, or names keys in its body."""
    parts = urlsplit(url)
    key = unquote(parts.path).removeprefix(f"/{BUCKET}").lstrip("/")
    if method == "POST" and "delete" in parse_qs(parts.query, keep_blank_values=True):
        return "s3:DeleteObject", ""
    return ("s3:ListBucket", "") if method == "GET" and not key else (ACTIONS[method], key)


@pytest.mark.full
def test_the_role_may_do_what_the_job_does_and_nothing_else(bucket, s3_server, use_s3, tmp_path):
    text = re.sub(r"^scheduler = .*$", "", JOB_TEXT, flags=re.M)
    night = Night.made(tmp_path / "job", bucket)
    Path(night.job).write_text(text.replace("${BUCKET}", bucket.removeprefix("s3://")))
    with proxy(s3_server.port) as between:
        for count in (300, 50):
            use_s3(s3_server.port)
            night.append(some_rows(count, columns=60))
            use_s3(between.port)
            night.run()
        found = {asked_for(*request) for request in between.requests}
    use_s3(s3_server.port)
    folder = bucket.removeprefix(f"s3://{BUCKET}/")
    places = {(act, f"arn:aws:s3:::lake/{key.removeprefix(f'{folder}/')}".rstrip("/")) for act, key in found if key}
    assert [place for place in places if not allowed(*place)] == []
    abort = {"s3:AbortMultipartUpload"}  # of a large object whose upload is given up
    assert {act for act, _ in found} | abort == {act for act, _ in ALLOWED}
    assert {each["Effect"] for each in POLICY} == {"Allow"}
    assert allowed("s3:ListBucket", "arn:aws:s3:::lake")
    assert not allowed("s3:PutObject", "arn:aws:s3:::lake/rows.zarr/zarr.json")
    assert not allowed("s3:GetObject", "arn:aws:s3:::lake/other.zarr/zarr.json")
    (storage,) = [each["data"] for each in of_kind("ConfigMap") if "BUCKET" in each["data"]]
    lake = f"arn:aws:s3:::{storage['BUCKET']}"
    for table, action in (("input", "Get"), ("model", "Put"), ("output", "Delete")):
        assert allowed(f"s3:{action}Object", JOB[table]["path"].replace("s3://${BUCKET}", lake) + "/zarr.json")
    assert allowed("s3:PutObject", f"{lake}/features.zarr.runs.jsonl")
    assert allowed("s3:PutObject", f"{lake}/features.zarr.partial/claim.json")
