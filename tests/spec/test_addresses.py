"""The form of addresses of schedulers."""

import pytest

from bigkpca.spec.addresses import is_scheduler


@pytest.mark.parametrize(
    "address", ["tcp://10.0.0.1:8786", "tls://scheduler:8786", "wss://host:443", "localhost:8786", "inproc://1.2/3"]
)
def test_addresses(address):
    assert is_scheduler(address)


@pytest.mark.parametrize("address", ["", "nowhere", "ftp://host:21", "tcp://host", "tcp://:8786", "tcp://host/x:1"])
def test_what_is_no_address(address):
    assert not is_scheduler(address)
