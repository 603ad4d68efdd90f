"""Tables of cases in one test."""

from contextlib import contextmanager


@contextmanager
def case(name):
    """Says which case it was that failed."""
    try:
        yield
    except BaseException as error:  # failures of pytest are no Exceptions
        error.add_note(f"in the case {name!r}")
        raise
