"""The output of a scheduled job: a folder of versions of its features, and the manifest that names the current one.

OUT/manifest.json     the current version, and the model of each; what is being pruned; replaced at once
OUT/1, OUT/2, ...     feature stores
OUT/pinned.json       the rows of a run that has begun and did not end
OUT/runs.jsonl        a line for each run
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from bigkpca.data.json_files import parsed, read_if_there
from bigkpca.data.stores import last_name, parent
from bigkpca.errors import CorruptionError, IncompleteError

JOB = "job"  # the format that the group says it has
VERSIONS = "manifest.json"


def version_path(out: str, number: int) -> str:
    """The folder of one version."""
    return f"{out}/{number}"


def read_versions(out: str) -> dict[str, Any] | None:
    """The manifest of the versions: `current` (a number) and `versions`, each with its number, model and reason; the
    `last` number that a version was given, where later ones were pruned, and what is being removed (`pruning`).

    None before the first version is published. Raises CorruptionError for a damaged one.
    """
    name = f"{out}/{VERSIONS}"
    try:
        content = read_if_there(name)
        if content is None:
            return None
        found: Any = parsed(content)
    except ValueError as error:
        raise CorruptionError(f"{name} does not parse ({error}); restore it") from error
    if not _is_manifest(found):
        raise CorruptionError(f"{name} does not name the current version and the model of each; restore it")
    return dict(found)


def _is_manifest(found: Any) -> bool:
    if not isinstance(found, dict) or not isinstance(found.get("versions"), list):
        return False
    return found.get("current") in [each.get("number") for each in found["versions"] if _is_version(each)] and all(
        map(_is_version, found["versions"])
    )


def _is_version(found: Any) -> bool:
    if not isinstance(found, dict) or not isinstance(found.get("model"), dict):
        return False
    numbers = found.get("number"), found["model"].get("number")
    texts = found["model"].get("path"), found["model"].get("digest"), found.get("reason")
    return all(type(number) is int and number > 0 for number in numbers) and all(
        isinstance(text, str) for text in texts
    )


def current_version(out: str) -> str:
    """The folder of the current version. Raises IncompleteError before there is one."""
    manifest = read_versions(out)
    if manifest is None:
        raise IncompleteError(
            f"{out} is not finished: its first run was stopped; run the same bigkpca run command again"
        )
    return version_path(out, manifest["current"])


def last_number(manifest: Mapping[str, Any]) -> int:
    """The largest number that a version was given, also one that was pruned; 0 before the first."""
    pruned = manifest.get("last")
    return max([pruned if type(pruned) is int else 0, *(each["number"] for each in manifest["versions"])])


def check_not_pruned(path: str) -> None:
    """Raise IncompleteError where `path` was a version of the output of a job, and was pruned."""
    name, manifest = last_name(path), None
    if name.isdecimal():
        with suppress(CorruptionError, OSError):
            manifest = read_versions(parent(path))
    if manifest is None or int(name) > last_number(manifest):
        return
    if int(name) not in [each["number"] for each in manifest["versions"]]:
        raise IncompleteError(
            f"{path} was pruned while it was read: run the same command again, which reads the current version of "
            f"{parent(path)}"
        )
