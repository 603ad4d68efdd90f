"""The records of a job."""

from __future__ import annotations

from typing import Any

from bigkpca.data.stores import AnyPath, expanded
from bigkpca.data.versions import JOB
from bigkpca.execution.progress import Progress, shown
from bigkpca.storage import groups, jobs


def history(out: AnyPath, *, progress: Progress | bool = False) -> list[dict[str, Any]]:
    """The records of all runs of a job, in the order in which they ended.

    Parameters
    ----------
    out : path
        The output of the job.
    progress : Progress
        Receives a note about lines that do not parse, which are skipped.

    Returns
    -------
    list of dict
        See `docs/scheduled.md` for the content of a record.

    Raises
    ------
    SpecError
        There is no output of a job.

    Notes
    -----
    Reads no rows and no features.
    """
    progress = shown(progress)
    path = expanded(out)
    groups.open_group(path, JOB)
    found, damaged = jobs.read_records(path)
    if damaged:
        lines = ", ".join(map(str, damaged[:10]))
        progress.note(f"{path}/{jobs.RECORDS}: skipping lines that do not parse: {lines}")
    return found
