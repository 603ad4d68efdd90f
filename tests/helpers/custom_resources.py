"""Schemas of the Dask operator's resources, and what Kubernetes does with a field that a schema lacks.

`dask_operator.json` has them from dask-kubernetes 2026.3.0 (BSD-3-Clause), without descriptions. The long tests compare
it with what that release has, which needs 200 MB of other libraries.
"""

import json
from pathlib import Path

import yaml

STORED = Path(__file__).with_name("dask_operator.json")
_OF_EVERY_OBJECT = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}


def condensed(folder):
    """The text of `dask_operator.json` from the folder of a release that holds its definitions."""
    schemas = {}
    for name in ("daskautoscaler", "daskcluster"):  # files of the release
        definition = yaml.safe_load((folder / f"{name}.yaml").read_text())["spec"]
        schema = definition["versions"][0]["schema"]["openAPIV3Schema"]
        schemas[definition["names"]["kind"]] = _without_descriptions(schema)
    parts = schemas["DaskCluster"]["properties"]["spec"]["properties"]
    pods = [parts[part]["properties"].pop("spec") for part in ("scheduler", "worker")]
    assert pods[0] == pods[1]  # stored once
    return json.dumps({"PodSpec": pods[0], **schemas}, separators=(",", ":")) + "\n"


def _without_descriptions(node):
    if isinstance(node, list):
        return [_without_descriptions(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _without_descriptions(value)
        for key, value in node.items()
        if key != "description" or not isinstance(value, str)  # a property may have that name
    }


def schema_of(kind):
    """The schema of a kind, in which a field that Kubernetes would drop is an error."""
    stored = json.loads(STORED.read_text())
    schema = stored[kind]
    if kind == "DaskCluster":
        for part in ("scheduler", "worker"):
            schema["properties"]["spec"]["properties"][part]["properties"]["spec"] = stored["PodSpec"]
    closed = _closed(schema)
    closed["properties"] |= _OF_EVERY_OBJECT
    return closed


def _closed(node):
    if isinstance(node, list):
        return [_closed(each) for each in node]
    if not isinstance(node, dict):
        return node
    found = {key: _closed(value) for key, value in node.items()}
    closes = isinstance(node.get("properties"), dict) and node.get("type") == "object"
    return {"additionalProperties": False, **found} if closes else found
