"""The connection to the database dies while it commits: done or not, nobody knows."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uuid_utils.compat
from django.db import OperationalError, connection, connections
from django.test import Client

from inventory import gate
from inventory.models import FlashSale
from orders import accounting, creation, priming, repair, services
from orders.models import Order, OrderEvent, Payment, Status, WebhookEvent
from orders.payments import sandbox
from tests.factories import FlashSaleFactory, OrderFactory, PaymentFactory, UserFactory
from tests.support.proxy import FaultProxy

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """What this thread's connection to the database goes through."""
    options = connections.settings["default"]
    with FaultProxy(int(options["PORT"])) as proxy:
        connection.close()
        monkeypatch.setitem(options, "PORT", str(proxy.port))
        yield proxy
        proxy.heal()
        connection.close()


def cut_the_next_commit(way: FaultProxy) -> None:
    """PostgreSQL has committed; its answer is lost, and so is the connection."""
    way.set("cut_reply_once", when=lambda piece: b"COMMIT\x00" in piece)


def books(sale: FlashSale) -> tuple[int, int | None]:
    """Units allocated and at the gate, once everything that runs periodically has run."""
    repair.sweep_releases()
    assert accounting.allocated_drift(sale.pk) == 0
    return FlashSale.objects.get(pk=sale.pk).allocated, gate.stocks([sale.pk])[sale.pk]


def test_commit_without_an_answer_makes_orders_once(way: FaultProxy) -> None:
    sale = FlashSaleFactory(primed=True)
    users = UserFactory.create_batch(3)
    entries = [gate.Entry(user.pk, str(uuid_utils.compat.uuid7())) for user in users]
    gate.reserve(sale.pk, entries)
    purchases = creation.parse([(e.purchase_id, e.user_id, e.quantity) for e in entries])

    cut_the_next_commit(way)
    with pytest.raises(OperationalError):
        creation.create_orders(sale_id=sale.pk, purchases=purchases)
    assert way.fired.is_set()
    orders = creation.create_orders(sale_id=sale.pk, purchases=purchases)
    services.settle(sale.pk, orders)

    assert {str(o.pk): o.status for o in orders} == {e.purchase_id: Status.UNPAID for e in entries}
    assert OrderEvent.objects.count() == 3
    assert books(sale) == (3, 7)
    assert gate.journal_sizes([sale.pk]) == {sale.pk: 0}


def pay(order: Order) -> int:
    return services.pay_order(order.pk, actor="test")


def cancel(order: Order) -> int:
    return services.cancel_order(order.pk, actor="test")


def expire(order: Order) -> int:
    return services.expire_orders()


@pytest.mark.parametrize(
    ("move", "status", "kind", "left"),
    [
        (pay, Status.PAID, "paid", (1, 9)),
        (cancel, Status.CANCELED, "canceled", (0, 10)),
        (expire, Status.EXPIRED, "expired", (0, 10)),
    ],
)
def test_commit_without_an_answer_moves_an_order_once(
    way: FaultProxy,
    move: Callable[[Order], int],
    status: Status,
    kind: str,
    left: tuple[int, int],
) -> None:
    order = OrderFactory(overdue=True)
    priming.prime(order.sale_id)

    cut_the_next_commit(way)
    with pytest.raises(OperationalError):
        move(order)
    assert way.fired.is_set()
    again = move(order)

    assert not again  # It had happened.
    order.refresh_from_db()
    assert order.status == status
    kinds = OrderEvent.objects.filter(order=order).order_by("pk").values_list("kind", flat=True)
    assert list(kinds) == ["created", kind]
    assert books(order.sale) == left


def test_webhook_whose_commit_had_no_answer_pays_once(way: FaultProxy, client: Client) -> None:
    payment = PaymentFactory()
    body, headers = sandbox.message(payment, "payment.succeeded")

    def send() -> Any:
        path = "/api/v1/payments/sandbox/webhook"
        return client.post(path, body, content_type="application/json", headers=headers)

    cut_the_next_commit(way)
    first, second = send(), send()

    assert way.fired.is_set()
    assert first.status_code == 503
    assert int(first["Retry-After"]) >= 1
    assert second.status_code == 200
    assert Order.objects.get(pk=payment.order_id).status == Status.PAID
    assert WebhookEvent.objects.count() == 1
    assert OrderEvent.objects.filter(order=payment.order_id, kind="paid").count() == 1
    payment.refresh_from_db()
    assert (payment.status, payment.use) == (Payment.State.SUCCEEDED, Payment.Use.ORDER)


def test_payment_whose_commit_had_no_answer_is_begun_once(way: FaultProxy, client: Client) -> None:
    order = OrderFactory()
    client.force_login(order.user)
    path = f"/api/v1/orders/{order.pk}/pay"

    cut_the_next_commit(way)
    first = client.post(path, {"provider": "sandbox"}, content_type="application/json")
    second = client.post(path, {"provider": "sandbox"}, content_type="application/json")

    assert way.fired.is_set()
    assert first.status_code == 503
    assert second.status_code == 200
    payment = Payment.objects.get()
    assert second.json()["payment_url"] == payment.url
