"""Tables of cases in one test."""

from contextlib import contextmanager

import pytest


@contextmanager
def case(name):
    """Says which case it was that failed."""
    try:
        yield
    except BaseException as error:  # failures of pytest are no Exceptions
        error.add_note(f"in the case {name!r}")
        raise


def refused(use, *cases):
    """Each case is what `use` is given, and, at its end, the error that it raises and the message of that."""
    for *given, error, message in cases:
        with case((given, message)), pytest.raises(error, match=message):
            use(*given)
