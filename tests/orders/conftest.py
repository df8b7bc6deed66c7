"""Fixtures of the tests about orders and their money."""

import pytest
from pytest_django.fixtures import Settings

from orders.payments import calls, providers
from tests.orders.gateways import FakeGateway


@pytest.fixture
def gateway(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> FakeGateway:
    """A remote gateway, switched on as `fake`; calls have a second."""
    made = FakeGateway()
    settings.PAYMENT_PROVIDERS = ["fake", "sandbox"]
    settings.PAYMENT_TIMEOUT = 1
    load = providers._load
    monkeypatch.setitem(providers._CLASSES, "fake", "")
    monkeypatch.setattr(providers, "_load", lambda name: made if name == "fake" else load(name))
    calls._slots.cache_clear()
    return made
