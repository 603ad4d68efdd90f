"""What `kubectl kustomize` renders, and the pods that come of it."""

import subprocess
from functools import cache
from typing import Any, NamedTuple

import yaml

from tests.helpers.files import ROOT
from tests.helpers.s3 import program

FOLDER = ROOT / "deploy" / "kubernetes"


@cache
def rendered():
    """All documents; skips the test without kubectl."""
    command = [program("kubectl"), "kustomize", FOLDER]
    return tuple(yaml.safe_load_all(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout))


def templates():
    """The Secrets that a user makes."""
    return list(yaml.safe_load_all((FOLDER / "secrets.template.yaml").read_text()))


def of_kind(kind):
    return [document for document in rendered() if document["kind"] == kind]


def only(kind):
    """The one document of a kind."""
    (found,) = of_kind(kind)
    return found


class Pod(NamedTuple):
    """A pod that comes of the documents; each has one container."""

    labels: dict[str, str]
    spec: dict[str, Any]

    @property
    def container(self):
        (found,) = self.spec["containers"]
        return dict(found)


def pods():
    """Scheduler and worker with the labels that the operator gives them, and the job."""
    cluster, job = only("DaskCluster"), only("CronJob")["spec"]["jobTemplate"]["spec"]["template"]
    found = {}
    for name in ("scheduler", "worker"):
        labels = {"dask.org/cluster-name": cluster["metadata"]["name"], "dask.org/component": name}
        found[name] = Pod(labels, cluster["spec"][name]["spec"])
    return found | {"nightly": Pod(job["metadata"]["labels"], job["spec"])}


def option(container, name):
    """What follows an option in the command of a container."""
    return str(container["args"][container["args"].index(name) + 1])


def matches(selector, labels):
    """Whether a selector of `matchLabels` takes these."""
    assert set(selector) <= {"matchLabels"}
    return selector.get("matchLabels", {}).items() <= labels.items()
