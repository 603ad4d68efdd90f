"""Addresses of Dask schedulers."""

from __future__ import annotations


def is_scheduler(address: str) -> bool:
    """Whether this has the form of an address of a scheduler, such as tcp://10.0.0.1:8786."""
    scheme, _, host = address.rpartition("://")
    name, _, port = host.rpartition(":")
    known = scheme in ("", "tcp", "tls", "ws", "wss") and bool(name) and "/" not in name and port.isdecimal()
    return known or scheme == "inproc"
