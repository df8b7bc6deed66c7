"""What `manage.py audit` finds; that drift is found and repaired is in test_repair.py."""

from datetime import timedelta

import pytest
import redis
import uuid_utils.compat
from django.db.models import F
from django.utils import timezone

from inventory import gate, keys
from inventory.models import FlashSale
from orders import audit, priming, services
from orders.models import Order, Status
from tests.factories import FlashSaleFactory, OrderFactory

pytestmark = pytest.mark.django_db(transaction=True)


def violations(sale: FlashSale) -> list[str]:
    return audit.audit(sale.pk)["sales"][0]["violations"]


def test_audit_of_a_sale_in_every_state() -> None:
    sale = FlashSaleFactory(quantity=10)
    OrderFactory(sale=sale)
    for trait in ("paid", "expired", "canceled", "rejected"):
        OrderFactory(sale=sale, **{trait: True})
    OrderFactory(sale=sale, refunded=True, restocked=True)
    Order.objects.filter(restocked=True).update(gate_released_at=timezone.now())
    priming.prime(sale.pk)
    entry = gate.Entry(10**6, str(uuid_utils.compat.uuid7()))
    gate.reserve(sale.pk, [entry])

    assert audit.audit() == {
        "ok": True,
        "sales": [
            {
                "sale_id": sale.pk,
                "quantity": 10,
                "allocated": 2,
                "available": 8,
                "gate": 7,
                "in_flight": 1,
                "orders": {
                    "unpaid": 1,
                    "paid": 1,
                    "canceled": 1,
                    "expired": 1,
                    "refunded": 1,
                    "rejected": 1,
                },
                "violations": [],
            }
        ],
    }


def test_audit_of_an_unknown_sale() -> None:
    with pytest.raises(FlashSale.DoesNotExist):
        audit.audit(404)


def test_audit_finds_a_counter_that_differs_from_the_orders() -> None:
    sale = FlashSaleFactory(allocated=2, primed=True)

    assert violations(sale) == ["allocated differs from the orders by +2 units"]


def test_audit_finds_buyers_with_more_than_they_may_have() -> None:
    order = OrderFactory(quantity=2)
    priming.prime(order.sale_id)

    assert violations(order.sale) == ["1 buyers have more units than allowed"]


def test_audit_finds_unpaid_orders_past_their_deadline() -> None:
    order = OrderFactory(overdue=True)
    priming.prime(order.sale_id)

    assert violations(order.sale) == ["1 unpaid orders are past their deadline"]


def test_audit_gives_the_sweep_its_time() -> None:
    order = OrderFactory(pay_before=timezone.now() - timedelta(seconds=2))
    priming.prime(order.sale_id)

    assert violations(order.sale) == []


def test_audit_wants_a_gate_while_the_sale_runs_only() -> None:
    sale = FlashSaleFactory()

    assert violations(sale) == ["the gate is not primed"]
    FlashSale.objects.update(starts_at=F("starts_at") - timedelta(hours=3), ends_at=timezone.now())
    assert violations(sale) == []


def test_audit_finds_a_gate_with_a_wrong_stock(redis_client: redis.Redis) -> None:
    sale = FlashSaleFactory(primed=True)
    redis_client.decr(keys.of_sale(sale.pk, "stock"))

    assert violations(sale) == ["gate stock is 9, should be 10"]


def test_audit_sees_no_violation_in_what_is_under_way() -> None:
    order = OrderFactory(overdue=True)
    priming.prime(order.sale_id)
    Order.objects.filter(pk=order.pk).update(status=3, restocked=True)
    FlashSale.objects.update(allocated=0)  # the gate isn't told yet

    assert violations(order.sale) == []


def test_audit_sees_no_violation_in_an_order_that_ends_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order = OrderFactory()
    priming.prime(order.sale_id)
    held = list(gate.buyers(order.sale_id))

    def read_and_end(sale_id: int) -> list[tuple[int, str, str]]:
        services.cancel_order(order.pk, actor="x")
        return held

    monkeypatch.setattr(gate, "buyers", read_and_end)

    assert violations(order.sale) == []
    assert Order.objects.get().status == Status.CANCELED
