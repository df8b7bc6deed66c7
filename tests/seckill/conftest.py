"""Each test has Redis keys of its own, so that a sale's number may come again."""

import uuid

import pytest
from pytest_django.fixtures import Settings


@pytest.fixture(autouse=True)
def _own_redis_keys(settings: Settings) -> None:
    settings.REDIS_PREFIX = f"test:{uuid.uuid4().hex}:"
