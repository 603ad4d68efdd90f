"""Amounts of memory, times and addresses of schedulers, as people type them."""

import pytest

from bigkpca.errors import SpecError
from bigkpca.spec.units import check_scheduler, parse_bytes, parse_seconds, parse_share


def test_amounts_of_memory():
    assert [parse_bytes(given) for given in ("2 GB", "1MiB", 5)] == [2 * 10**9, 2**20, 5]
    with pytest.raises(SpecError, match="'-1 GB': an amount of memory must be positive"):
        parse_bytes("-1 GB")
    for text in ("lots", "", "GB", "1e400 GB", "inf", "2", " 1.5 "):
        with pytest.raises(SpecError, match=f"'{text}' is not an amount of memory"):
            parse_bytes(text)


def test_times():
    typed = ("90 s", "10 min", "2 mins", "1.5 h", "1 minute", 3.5)
    assert [parse_seconds(given) for given in typed] == [90, 600, 120, 5400, 60, 3.5]
    for text in ("", "s", "1e400 s", "inf", 10**400):
        with pytest.raises(SpecError, match="is not a time"):
            parse_seconds(text)


def test_addresses_of_schedulers():
    for address in ("tcp://10.0.0.1:8786", "tls://scheduler:8786", "wss://host:443", "localhost:8786", "inproc://1/3"):
        check_scheduler(address)
    for other in ("", "nowhere", "ftp://host:21", "tcp://host", "tcp://:8786", "tcp://host/x:1"):
        with pytest.raises(SpecError, match="is not the address of a Dask scheduler"):
            check_scheduler(other)


def test_a_share_is_a_number_or_a_percentage_between_0_and_1():
    assert [parse_share(share) for share in (0.01, "0.01", "1%", " 1 % ", 1e-3)] == [0.01, 0.01, 0.01, 0.01, 0.001]
    for wrong in (0, 1, "5", "100%", "-1%", "one", "", "%", True, None, float("nan"), [0.1]):
        with pytest.raises(SpecError, match=r"is not a share of rows between 0 and 1, such as 0\.01 or '1%'"):
            parse_share(wrong)
