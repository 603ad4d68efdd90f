"""What tests of scheduled runs share."""

import pytest

from tests.helpers.nights import Night


@pytest.fixture
def night(made):
    """The job that `made` of a module holds, as it was."""
    folder = str(made.again())
    return Night(folder, folder)
