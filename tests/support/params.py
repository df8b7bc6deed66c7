"""Parameters of which some are run with LONG=1 only."""

from typing import Any

import pytest


def more(*values: Any) -> list[Any]:
    """Further values of one parameter, for the long run."""
    return [pytest.param(value, marks=pytest.mark.long) for value in values]
