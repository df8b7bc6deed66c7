"""What is there for anybody, and that nothing else is."""

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from inventory.models import FlashSale
from tests.factories import FlashSaleFactory
from tests.security.addresses import shop_addresses
from tests.security.conftest import World
from tests.security.test_ownership import values

pytestmark = pytest.mark.usefixtures("checks")
# All that answers 200 to a visitor without a session.
OPEN = {
    "",
    "sales/<sale_id>/",
    "sales/<sale_id>/reminder.ics",
    "me/",  # says that it is nobody
    "pictures/<seed>.svg",
    "login/",
    "register/",
    "problems/<code>/",
    "livez",
    "readyz",
    "metrics",  # to this machine; see test_metrics_are_for_this_machine_or_a_token
    "api/v1/time",
    "api/v1/sales",
    "api/v1/sales/<sale>",
    "api/v1/captcha",
    "api/v1/docs",
    "api/v1/openapi.json",
}


def test_anybody_gets_what_is_listed_and_no_more(client: Client, world: World) -> None:
    answers = {
        address.route: client.get(address.path(values(world))) for address in shop_addresses()
    }

    found = {route for route, response in answers.items() if response.status_code == 200}
    assert found - {"readyz"} == OPEN - {"readyz"}
    others = {response.status_code for route, response in answers.items() if route not in OPEN}
    assert others <= {302, 401, 404, 405}


def test_public_answers_name_nobody(client: Client, world: World) -> None:
    secrets = (world.owner.username, str(world.order.pk), str(world.payment.pk))

    for address in shop_addresses():
        if address.route in OPEN:
            text = client.get(address.path(values(world))).text
            assert not [secret for secret in secrets if secret in text], address.route


@pytest.mark.parametrize("path", ["/nothing/", "/api/v1/nothing", "/orders/x/", "/api/v1/sales/0"])
def test_errors_show_no_inside(client: Client, settings: Settings, db: None, path: str) -> None:
    response = client.get(path)

    assert response.status_code == 404
    for word in ("Traceback", "settings", "urlconf", "urlpatterns", "SELECT", "seckill.", "/site-"):
        assert word not in response.text


@pytest.mark.django_db
def test_stock_is_told_as_the_contract_says_and_no_finer(client: Client) -> None:
    """From 100 units on nobody learns how many, before the start no more than during the sale."""
    sale: FlashSale = FlashSaleFactory(quantity=1234, scheduled=True)

    shown = client.get(f"/api/v1/sales/{sale.pk}")
    page = client.get(f"/sales/{sale.pk}/")

    assert shown.json()["stock_band"] == "plenty"
    for text in (shown.text, page.text):
        assert "1234" not in text
        assert "1,234" not in text
