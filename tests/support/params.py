"""What is run with LONG=1 only."""

import os
from typing import Any

import pytest

LONG = "1" in (os.environ.get("LONG"), os.environ.get("FULL"))


def more(*values: Any) -> list[Any]:
    """Further values of one parameter, for the long run."""
    return [pytest.param(value, marks=pytest.mark.long) for value in values]
