"""A job file, which `bigkpca run` runs again and again: read, checked as a whole, and described by a JSON Schema."""

from __future__ import annotations

from bigkpca.spec.job.problems import JobError
from bigkpca.spec.job.reading import Job, parse_keep, read_job
from bigkpca.spec.job.schema import job_schema
from bigkpca.spec.job.tables import JobInput, JobModel, JobOutput, JobRun

__all__ = ["Job", "JobError", "JobInput", "JobModel", "JobOutput", "JobRun", "job_schema", "parse_keep", "read_job"]
