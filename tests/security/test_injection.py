"""What somebody stored, and what somebody asks for, stays text: in pages, JSON, admin and SQL."""

import json
import re
from pathlib import Path

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from inventory import gate
from inventory.models import FlashSale, Product
from orders.models import Order, OrderEvent
from tests.factories import FlashSaleFactory, OrderFactory, PaymentFactory, UserFactory
from tests.security.addresses import admin_addresses, shop_addresses
from tests.security.conftest import World
from tests.security.test_ownership import admin_values, client_of, values
from tests.support import environment

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("checks")]
EVIL = "</script><img src=x onerror=alert(1)>{{ 7|add:7 }}{% debug %}\u202e"


@pytest.fixture
def poisoned() -> World:
    """Text of an attacker wherever text is kept; a user name came by another way than our form."""
    sale = FlashSaleFactory(primed=True, product__name=EVIL, product__description=EVIL)
    order = OrderFactory(sale=sale, user__username=EVIL)
    payment = PaymentFactory(order=order, started=True, reference=EVIL[:50])
    OrderEvent.objects.filter(order=order).update(actor=EVIL[:50], reason=EVIL)
    return World(sale, order.user, order, payment)


def test_stored_text_is_shown_as_text_everywhere(poisoned: World) -> None:
    buyer, boss = client_of(poisoned.owner), client_of(UserFactory(staff=True))
    places = [(buyer, a, values(poisoned)) for a in shop_addresses()]
    places += [(boss, a, admin_values(poisoned)) for a in admin_addresses()]
    found = 0

    for client, address, given in places:
        response = client.get(address.path(given))
        if response.headers["Content-Type"].startswith("text/html"):
            assert "<img src=x" not in response.text, address.route
            assert "{{ 7|add:7 }}" in response.text or "14{%" not in response.text, address.route
            found += "&lt;img src=x" in response.text
        elif "json" in response.headers["Content-Type"]:
            json.loads(response.text)
    assert found >= 5  # It is shown, and not only left out.


def test_lists_of_the_admin_show_text(poisoned: World) -> None:
    boss = client_of(UserFactory(staff=True))

    for path in ("inventory/flashsale/", "inventory/product/", "orders/order/", "auth/user/"):
        page = boss.get(f"/admin/{path}").text
        assert "<img src=x" not in page, path
        assert "&lt;img src=x" in page, path


WRITES_MARKUP = re.compile(
    r"(inner|outer)HTML\s*\+?=(?!=)|insertAdjacentHTML|document\.write|\beval\(|new Function"
)


def test_scripts_write_text_and_no_markup() -> None:
    """A frame's or an answer's text becomes a text node, never markup."""
    scripts = list((environment.ROOT / "seckill/static/seckill").glob("*.js"))

    assert WRITES_MARKUP.search("node.innerHTML = told;")
    assert len(scripts) > 5
    assert [path.name for path in scripts if WRITES_MARKUP.search(path.read_text())] == []


def test_templates_trust_no_text_but_that_of_the_code() -> None:
    trusting = re.compile(r"\|\s*safe\b|autoescape off|mark_safe|SafeString\(")
    sources: list[Path] = []
    for app in ("seckill", "orders", "inventory"):
        folder = environment.ROOT / app
        sources += [*folder.rglob("*.html"), *folder.rglob("*.py")]

    found = [path.name for path in sources if trusting.search(path.read_text())]

    assert len(sources) > 50
    assert found == ["_form.html"]  # The help texts of Django's forms are a list.


LOOKUPS = [
    *("user__password__startswith=argon2", "user__password=x", "_connector=OR", "_negated=1"),
    *("sale__product__name__regex=(a%2B)%2B$", "pk__in=1", "id__gt=0&id__lt=x", "o=user__password"),
    *("order_by=user__password", "created_at__gte=%00", "status__exact=%00", "e=1", "all=", "p=-1"),
    *("p=99999999999999999999", "o=99.-1", "q=%00", "_to_field=password", "_popup=1"),
]


@pytest.mark.parametrize("query", LOOKUPS)
def test_lookups_are_those_that_are_offered(world: World, query: str) -> None:
    boss, buyer = client_of(UserFactory(staff=True)), client_of(world.owner)
    buyers_view = buyer.get("/orders/").text.count("/orders/")

    admin = boss.get(f"/admin/orders/order/?{query}")
    page = buyer.get(f"/orders/?{query}")

    assert admin.status_code in (200, 302, 400)
    assert "argon2" not in admin.text
    assert page.status_code == 200
    assert page.text.count("/orders/") >= buyers_view - 2


def test_what_is_not_asked_for_is_not_taken(client: Client) -> None:
    """Price, state and owner are the server's, whatever a form or a body brings."""
    sale = FlashSaleFactory(primed=True)
    buyer = UserFactory()
    client.force_login(buyer)
    more = {"price": "0.01", "unit_price_cents": "1", "amount_cents": "1", "user_id": "1"}
    more |= {"status": "1", "is_staff": "true", "is_superuser": "1", "quantity": "1"}

    client.post(f"/sales/{sale.pk}/buy/", more)
    order = OrderFactory(user=buyer, sale=FlashSaleFactory(primed=True))
    body = json.dumps({"provider": "sandbox", "amount": "0.01", "amount_cents": 1, "order": "x"})
    client.post(f"/api/v1/orders/{order.pk}/pay", body, "application/json")

    assert order.payments.get().amount_cents == order.amount_cents
    buyer.refresh_from_db()
    assert (buyer.is_staff, buyer.is_superuser) == (False, False)
    assert gate.stocks([sale.pk])[sale.pk] == 9


# --- staff that may only look ---------------------------------------------------------------------


@pytest.fixture
def viewer() -> Client:
    user = UserFactory(is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    return client_of(user)


FORGED = {
    "_save": "Save",
    "action": "delete_selected",
    "post": "yes",
    "form-TOTAL_FORMS": "1",
    "form-INITIAL_FORMS": "0",
    "form-0-name": "forged",
    "payments-TOTAL_FORMS": "1",
    "payments-INITIAL_FORMS": "0",
    "payments-0-amount_cents": "1",
    "events-TOTAL_FORMS": "1",
    "events-INITIAL_FORMS": "0",
    "events-0-kind": "forged",
    "name": "forged",
    "username": "forged",
}


def test_forged_posts_of_viewers_write_nothing(world: World, viewer: Client) -> None:
    before, products = world.state(), Product.objects.count()

    for address in admin_addresses():
        if address.route in ("admin/logout/", "admin/login/"):
            continue
        for object_id in (world.order.pk, world.sale.pk, world.owner.pk):
            path = address.path(admin_values(world) | {"object_id": object_id, "id": object_id})
            viewer.post(path, FORGED | {"_selected_action": str(object_id)})

    assert world.state() == before
    assert Product.objects.count() == products
    assert not Product.objects.filter(name="forged").exists()
    assert Order.objects.filter(pk=world.order.pk).exists()
    assert FlashSale.objects.filter(pk=world.sale.pk).exists()


def test_account_with_orders_can_not_be_deleted(world: World) -> None:
    boss = client_of(UserFactory(staff=True))
    before = world.state()

    page = boss.post(f"/admin/auth/user/{world.owner.pk}/delete/", {"post": "yes"})

    assert page.status_code == 200
    assert world.state()[0] == before[0]
    world.owner.refresh_from_db()
