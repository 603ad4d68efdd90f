"""Scheduled runs of a job: features of the rows that arrived since the last run."""
