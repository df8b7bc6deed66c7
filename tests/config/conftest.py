"""The address table of the small site that the tests of config.pool use."""

from typing import Any

import pytest

from tests.config import pool_site as site


@pytest.fixture
def pool_site(settings: Any) -> None:
    settings.ROOT_URLCONF = site.__name__
    site.gates.reset()
