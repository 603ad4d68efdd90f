"""Run a command with the system calls that a systemd service may make: `python under_filter.py UNIT COMMAND ...`.

SystemCallFilter, MemoryDenyWriteExecute and RestrictAddressFamilies of the unit become a seccomp filter, as in systemd.
"""

import ctypes
import mmap
import os
import re
import socket
import subprocess
import sys
from errno import EPERM
from pathlib import Path

ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | EPERM
EQUAL, MASKED = 4, 7
WRITE, EXECUTE = mmap.PROT_WRITE, mmap.PROT_EXEC


class Argument(ctypes.Structure):
    """`struct scmp_arg_cmp` of libseccomp: what one argument of a system call must be."""

    _fields_ = (("number", ctypes.c_uint), ("how", ctypes.c_int), ("mask", ctypes.c_uint64), ("value", ctypes.c_uint64))


def settings(unit):
    """The values of each key of [Service]."""
    found = {}
    section = unit.read_text().partition("[Service]")[2].partition("\n[")[0]
    for key, value in re.findall(r"^(\w+)=(.*)$", section, re.MULTILINE):
        found.setdefault(key, []).append(value)
    return found


def expanded(name):
    """The system calls of a set such as @system-service."""
    if not name.startswith("@"):
        return {name}
    listed = subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True)
    inside = [line.strip() for line in listed.stdout.splitlines()[1:] if not line.strip().startswith("#")]
    return set().union(*(expanded(each) for each in inside))


def allowed_calls(values):
    """What SystemCallFilter leaves: the sets that are named, without those behind a tilde."""
    allowed = set()
    for value in values:
        calls = set().union(*(expanded(name) for name in value.lstrip("~").split()))
        allowed = allowed - calls if value.startswith("~") else allowed | calls
    return allowed


def restricted(unit):
    """System calls that are allowed with some values of an argument only."""
    families = [getattr(socket, name) for name in unit["RestrictAddressFamilies"][0].split()]
    rules = {"socket": [Argument(0, EQUAL, family) for family in families]}
    if unit["MemoryDenyWriteExecute"] == ["yes"]:
        rules["mmap"] = [Argument(2, MASKED, WRITE | EXECUTE, value) for value in (0, WRITE, EXECUTE)]
        rules["mprotect"] = rules["pkey_mprotect"] = [Argument(2, MASKED, EXECUTE, 0)]
    return rules


def load(unit):
    """Set the filter for this process and those that it starts."""
    seccomp = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    seccomp.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32(REFUSE)))
    rules = restricted(unit)
    for name in allowed_calls(unit["SystemCallFilter"]):
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if number < 0:  # of another processor
            continue
        for arguments in [[rule] for rule in rules[name]] if name in rules else [[]]:
            array = (Argument * len(arguments))(*arguments)
            assert seccomp.seccomp_rule_add_array(context, ALLOW, number, len(arguments), array) == 0, name
    assert seccomp.seccomp_load(context) == 0


if __name__ == "__main__":
    load(settings(Path(sys.argv[1])))
    os.execvp(sys.argv[2], sys.argv[2:])
