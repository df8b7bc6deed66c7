"""Whose is it? Each address that names a thing is in the table below, with who may touch the thing.

An address that is added without a line here fails the first test.
"""

import re
import uuid
from collections.abc import Mapping
from typing import Any, Literal

import pytest
import uuid_utils.compat
from django.contrib.auth.models import User
from django.test import Client

from inventory import gate
from inventory.gate import Entry
from inventory.models import FlashSale
from orders.models import Order
from seckill.problems import CODES
from tests.factories import FlashSaleFactory, OrderFactory, UserFactory
from tests.seckill.conftest import Shop, bearer, token_for
from tests.security.addresses import (
    Address,
    admin_addresses,
    lane_routes,
    shop_addresses,
    socket_routes,
)
from tests.security.conftest import World
from tests.support.waiting import wait_until

# public: anybody reads, nobody writes. self: makes or asks for something of the caller's own.
# owner: only for the owner of the thing. signed: only for who holds the provider's secret.
Rule = Literal["public", "self", "owner", "signed"]
RULES: dict[str, Rule] = {
    "sales/<sale_id>/": "public",
    "sales/<sale_id>/buy/": "self",
    "sales/<sale_id>/reminder.ics": "public",
    "purchases/<sale_id>/<purchase_id>/": "owner",
    "purchases/<sale_id>/<purchase_id>/place/": "self",
    "orders/<order_id>/": "owner",
    "orders/<order_id>/pay/": "owner",
    "orders/<order_id>/cancel/": "owner",
    "cashier/<payment_id>/": "owner",
    "pictures/<seed>.svg": "public",
    "problems/<code>/": "public",
    "api/v1/sales/<sale>": "public",
    "api/v1/sales/<sale>/token": "self",
    "api/v1/orders/<order>": "owner",
    "api/v1/orders/<order>/pay": "owner",
    "api/v1/orders/<order>/cancel": "owner",
    "api/v1/payments/<provider>/webhook": "signed",
}
LANE_RULES: dict[str, Rule] = {
    "api/v1/sales/<sale>/purchases": "self",
    "api/v1/sales/<sale>/purchases/<purchase>": "owner",
}
SOCKET_RULES: dict[str, Rule] = {
    r"^ws/v1/me/?$": "self",
    r"^ws/v1/sales/(?P<sale_id>[1-9][0-9]{0,17})/?$": "public",
    r"": "public",  # answers that there is nothing
}
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def with_parameters() -> dict[str, Address]:
    return {address.route: address for address in shop_addresses() if address.parameters}


def values(world: World, **other: object) -> dict[str, object]:
    return {
        "sale_id": world.sale.pk,
        "sale": world.sale.pk,
        "purchase_id": world.order.pk,
        "purchase": world.order.pk,
        "order_id": world.order.pk,
        "order": world.order.pk,
        "payment_id": world.payment.pk,
        "seed": "0123456789",
        "code": next(iter(CODES)),
        "provider": "sandbox",
        **other,
    }


def nobodys(world: World) -> dict[str, object]:
    """Made this very moment, as the ids of the world: the queue page looks for such ones."""
    unknown = uuid_utils.compat.uuid7()
    names = ("purchase_id", "purchase", "order_id", "order", "payment_id")
    return values(world, **dict.fromkeys(names, unknown))


def ask(client: Client, method: str, path: str) -> Any:
    form = {"provider": "sandbox", "result": "pay", "quantity": "1"}
    if path.startswith("/api/"):
        return client.generic(method, path, '{"provider":"sandbox"}', "application/json")
    return client.post(path, form) if method == "POST" else client.generic(method, path)


def told(response: Any, path: str, ids: Mapping[str, object]) -> tuple[int, str]:
    """What a visitor learns, without the request's own id and the address that was asked for."""
    text = re.sub(r'(csrfmiddlewaretoken" value=")[^"]+', r"\1", response.text)
    uuids = [str(value) for value in ids.values() if isinstance(value, uuid.UUID)]
    for secret in (response.headers["X-Request-Id"], path, *uuids):
        text = text.replace(secret, "")
    return response.status_code, text


def client_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


OWNED = sorted(route for route, rule in RULES.items() if rule == "owner")


@pytest.mark.django_db
def test_every_address_with_a_parameter_has_a_rule() -> None:
    assert set(with_parameters()) == set(RULES)
    assert lane_routes() == set(LANE_RULES)
    assert socket_routes() == list(SOCKET_RULES)


@pytest.mark.parametrize("route", OWNED)
def test_owned_thing_looks_like_none_to_everybody_else(world: World, route: str) -> None:
    address = with_parameters()[route]
    others = [UserFactory(), OrderFactory(sale=world.sale).user, UserFactory(is_staff=True)]
    before = world.state()

    for user in others:
        client = client_of(user)
        for method in METHODS:
            theirs, none = values(world), nobodys(world)
            foreign = ask(client, method, address.path(theirs))
            unknown = ask(client, method, address.path(none))

            looked_for = route.startswith("purchases/") and method == "GET"
            assert foreign.status_code in ((200,) if looked_for else (404, 405)), (route, method)
            assert told(foreign, address.path(theirs), theirs) == told(
                unknown, address.path(none), none
            )
    assert world.state() == before


@pytest.mark.parametrize("route", OWNED)
def test_owned_thing_is_there_for_its_owner(world: World, route: str) -> None:
    """The control: the addresses above do lead to something."""
    client = client_of(world.owner)

    answers = {
        method: ask(client, method, with_parameters()[route].path(values(world))).status_code
        for method in ("GET", "POST")
    }

    assert set(answers.values()) & {200, 302}, answers
    assert 404 not in answers.values()


def test_administrator_is_no_owner_either(world: World) -> None:
    """Who may do everything does it in the admin, where it is written down."""
    client = client_of(UserFactory(staff=True))

    for route in OWNED:
        assert ask(client, "POST", with_parameters()[route].path(values(world))).status_code in (
            404,
            405,
        )


def test_own_things_are_all_that_a_list_shows(world: World, stranger: User) -> None:
    client = client_of(stranger)

    pages = [client.get(path).text for path in ("/orders/", "/api/v1/orders", "/me/?sale=1")]
    searched = client.get("/orders/", {"q": str(world.order.pk)[:8]}).text

    for text in (*pages, searched):
        assert f"/orders/{world.order.pk}/" not in text
        assert str(world.order.pk) not in text


@pytest.mark.django_db(transaction=True)
def test_lane_tells_a_purchase_to_its_buyer_only(shop: Shop) -> None:
    sale: FlashSale = FlashSaleFactory(primed=True)
    owner, other = UserFactory(), UserFactory()
    order: Order = OrderFactory(sale=sale, user=owner)
    queued = uuid_utils.compat.uuid7()
    gate.reserve(sale.pk, [Entry(UserFactory().pk, str(queued))])
    elsewhere = FlashSaleFactory(primed=True)

    for purchase in (order.pk, queued):
        foreign = shop.outcome(sale.pk, purchase, token_for(sale, other))
        unknown = shop.outcome(sale.pk, uuid.uuid4(), token_for(sale, other))
        wrong_sale = shop.outcome(sale.pk, purchase, token_for(elsewhere, owner))
        assert (
            (foreign.status, foreign.code) == (unknown.status, unknown.code) == (404, "not_found")
        )
        assert (wrong_sale.status, wrong_sale.code) == (403, "token_invalid")
    assert shop.outcome(sale.pk, order.pk, token_for(sale, owner)).status == 200


@pytest.mark.django_db(transaction=True)
def test_lane_takes_a_session_for_its_own_purchases_only(shop: Shop) -> None:
    sale: FlashSale = FlashSaleFactory(primed=True)
    order: Order = OrderFactory(sale=sale)
    statuses = {}
    assert order.user is not None
    for name, user in (("owner", order.user), ("other", UserFactory())):
        cookie = f"sessionid={client_of(user).cookies['sessionid'].value}"
        target = f"/api/v1/sales/{sale.pk}/purchases/{order.pk}"
        statuses[name] = shop.ask("GET", target, headers={"Cookie": cookie}).status

    assert statuses == {"owner": 200, "other": 404}


@pytest.mark.django_db(transaction=True)
def test_token_buys_for_its_buyer_in_its_sale_only(shop: Shop) -> None:
    sale, other = FlashSaleFactory(primed=True), FlashSaleFactory(primed=True)
    buyer = UserFactory()
    token = token_for(sale, buyer)
    body = {"headers": {"Content-Type": "application/json"}}

    elsewhere = shop.buy(other.pk, token)
    as_another = shop.buy(sale.pk, token, body=b'{"user_id":1,"price":"0.01"}', **body)

    assert (elsewhere.status, elsewhere.code) == (403, "token_invalid")
    assert as_another.status == 202
    assert wait_until(lambda: [entry[1] for entry in shop.broker.entries]) == [buyer.pk]
    assert gate.stocks([other.pk])[other.pk] == 10
    assert shop.ask("POST", f"/api/v1/sales/{sale.pk}/purchases", headers=bearer("x")).status == 403


# --- the admin ------------------------------------------------------------------------------------

# What is there without a right: the way in, the way out, and translations of the calendar.
ADMIN_OPEN = {
    "admin/login/": {302},
    "admin/jsi18n/": {200, 302},
    "admin/logout/": {302, 405},
    "admin/password_change/": {200, 302},
    "admin/password_change/done/": {200, 302},
    "admin/": {200, 302},
}


def admin_values(world: World) -> dict[str, object]:
    return {
        "object_id": world.order.pk,
        "content_type_id": 1,
        "app_label": "orders",
        "url": "orders/order",
        "id": world.owner.pk,
    }


def test_admin_opens_nothing_to_strangers_and_buyers(world: World) -> None:
    buyer = client_of(world.owner)

    for address in admin_addresses():
        path = address.path(admin_values(world))
        for client in (Client(), buyer):
            response = client.get(path)
            entry = address.route == "admin/login/"
            assert response.status_code in ({200} if entry else {302, 403, 404, 405}), path


def test_admin_shows_staff_without_rights_no_data(world: World) -> None:
    client = client_of(UserFactory(is_staff=True))
    secrets = (str(world.order.pk), str(world.payment.pk), world.owner.username)

    for address in admin_addresses():
        response = client.get(address.path(admin_values(world)))
        allowed = ADMIN_OPEN.get(address.route, {301, 302, 403, 404, 405})
        assert response.status_code in allowed, address.route
        if response.status_code == 200:
            assert not [secret for secret in secrets if secret in response.text], address.route
