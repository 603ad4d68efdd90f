"""Check finished block-wise output against its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bigkpca.data.stores import store_of
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Progress
from bigkpca.execution.tasks import Task
from bigkpca.storage import block_arrays, damage
from bigkpca.storage.damage import Damage


def checked(
    path: str, manifest: Mapping[str, Any], engine: Engine, progress: Progress
) -> tuple[list[Damage], list[Damage]]:
    """Shards that are missing or damaged, in the order of their blocks, and files that do not belong to the output.

    One pass over the output. Raises CorruptionError where the manifest is not about what is there.
    """
    path = store_of(path).absolute(path)
    promised = block_arrays.promised(path, manifest)
    gone, strange = damage.listed_damage(path, manifest["format"], [block for block, _ in promised])
    missing = {(each.block, each.file.partition("/")[0]) for each in gone}
    there = [
        (block, {name: digest for name, digest in digests.items() if (block, name) not in missing})
        for block, digests in promised
    ]
    tasks = [Task(damage.block_damage, (path, block, digests), len(block)) for block, digests in there]
    found = [each for some in engine.each("checking finished blocks", tasks, progress) for each in some]
    return sorted([*gone, *found], key=_number), strange


def _number(found: Damage) -> int:
    assert found.block is not None
    return found.block.number
