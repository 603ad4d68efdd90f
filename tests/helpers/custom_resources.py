"""Schemas of the Dask operator's resources, and what Kubernetes does with a field that a schema lacks.

`dask_operator.json` has them from dask-kubernetes 2026.3.0 (BSD-3-Clause), without descriptions; the schema of pods is
there once, as PodSpec.
"""

import json
from pathlib import Path


def schema_of(kind):
    """The schema of a kind, in which a field that Kubernetes would drop is an error."""
    stored = json.loads(Path(__file__).with_name("dask_operator.json").read_text())
    schema = stored[kind]
    if kind == "DaskCluster":
        for part in ("scheduler", "worker"):
            schema["properties"]["spec"]["properties"][part]["properties"]["spec"] = stored["PodSpec"]
    closed = _closed(schema)
    closed["properties"] |= {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    return closed


def _closed(node):
    if isinstance(node, list):
        return [_closed(each) for each in node]
    if not isinstance(node, dict):
        return node
    found = {key: _closed(value) for key, value in node.items()}
    closes = isinstance(node.get("properties"), dict) and node.get("type") == "object"
    return {"additionalProperties": False, **found} if closes else found
