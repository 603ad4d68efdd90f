"""What tests of scheduled runs share."""

from __future__ import annotations

import pytest

from tests.helpers.disks import Restored
from tests.helpers.nights import Night


@pytest.fixture
def night(made: Restored) -> Night:
    """The job that `made` of a module holds, as it was."""
    folder = str(made.again())
    return Night(folder, folder)
