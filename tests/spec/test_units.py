"""Amounts of memory, times and addresses of schedulers, as people type them."""

import pytest

from bigkpca.errors import SpecError
from bigkpca.spec.units import check_scheduler, parse_bytes, parse_seconds
from tests.data.cases import case

ADDRESSES = ("tcp://10.0.0.1:8786", "tls://scheduler:8786", "wss://host:443", "localhost:8786", "inproc://1/3")
READ = [
    (parse_bytes, {"2 GB": 2 * 10**9, "1MiB": 2**20, 5: 5}),
    (parse_seconds, {"90 s": 90, "10 min": 600, "2 mins": 120, "1.5 h": 5400, "1 minute": 60, 3.5: 3.5}),
    (check_scheduler, dict.fromkeys(ADDRESSES)),
]
WRONG_ADDRESSES = ["", "nowhere", "ftp://host:21", "tcp://host", "tcp://:8786", "tcp://host/x:1"]
REFUSED = [
    (parse_bytes, ["-1 GB"], "'-1 GB': an amount of memory must be positive"),
    (parse_bytes, ["lots", "", "GB", "1e400 GB", "inf", "2", " 1.5 "], "'{}' is not an amount of memory"),
    (parse_seconds, ["", "s", "1e400 s", "inf", 10**400], "is not a time"),
    (check_scheduler, WRONG_ADDRESSES, "is not the address of a Dask scheduler"),
]


def test_what_people_type_is_read_or_refused_by_name():
    for read, values in READ:
        assert {typed: read(typed) for typed in values} == values
    for read, wrong, message in REFUSED:
        for typed in wrong:
            with case((read, typed)), pytest.raises(SpecError, match=message.format(typed)):
                read(typed)
