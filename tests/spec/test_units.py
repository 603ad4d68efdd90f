"""Amounts of memory and times, as people type them."""

import pytest

from bigkpca.errors import SpecError
from bigkpca.spec.units import lacks_unit, parse_bytes, parse_seconds


@pytest.mark.parametrize(("text", "amount"), [("2 GB", 2 * 10**9), ("1MiB", 2**20), (5, 5)])
def test_amounts_of_memory(text, amount):
    assert parse_bytes(text) == amount


def test_an_amount_is_positive():
    with pytest.raises(SpecError, match="'-1 GB': an amount of memory must be positive"):
        parse_bytes("-1 GB")


def test_an_amount_that_is_none():
    with pytest.raises(SpecError, match="'lots' is not an amount of memory"):
        parse_bytes("lots")


@pytest.mark.parametrize(
    ("text", "seconds"), [("90 s", 90), ("10 min", 600), ("2 mins", 120), ("1.5 h", 5400), ("1 minute", 60), (3.5, 3.5)]
)
def test_times_are_read_as_people_type_them(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "GB", "1e400 GB", "inf"])
def test_amounts_without_a_number_or_beyond_all_numbers(text):
    with pytest.raises(SpecError, match="is not an amount of memory"):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["", "s", "1e400 s", "inf", 10**400])
def test_times_without_a_number_or_beyond_all_numbers(text):
    with pytest.raises(SpecError, match="is not a time"):
        parse_seconds(text)


@pytest.mark.parametrize(("text", "lacks"), [("2", True), (" 1.5 ", True), ("2 GB", False), ("2e9", False)])
def test_a_number_alone_lacks_a_unit(text, lacks):
    assert lacks_unit(text) is lacks
