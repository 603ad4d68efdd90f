"""Ingestion: files of other formats into datasets."""
