"""The gate learns what became of the purchases that it admitted."""

from typing import Any

import pytest
import uuid_utils.compat

from inventory import gate
from inventory.models import FlashSale
from orders import creation, priming, services
from orders.creation import Purchase
from orders.models import Order, Rejection
from tests.conftest import RunDuring
from tests.factories import FlashSaleFactory, OrderFactory, UserFactory

pytestmark = pytest.mark.django_db(transaction=True)


def away(*args: Any, **kwargs: Any) -> Any:
    raise gate.GateError("Redis is away")


def bought(sale: FlashSale, user_id: int) -> Purchase:
    purchase_id = uuid_utils.compat.uuid7()
    gate.reserve(sale.pk, [gate.Entry(user_id, str(purchase_id))], limited=False)
    return Purchase(purchase_id, user_id, 1)


def test_settle_tells_the_gate_what_became_of_each_purchase() -> None:
    sale = FlashSaleFactory(primed=True)
    purchases = [bought(sale, UserFactory().pk), bought(sale, 10**6)]
    orders = creation.create_orders(sale_id=sale.pk, purchases=purchases)

    assert [services.settle(sale.pk, orders) for _ in range(2)] == [True, True]

    assert gate.snapshot(sale.pk).claims == {}
    assert gate.snapshot(sale.pk).stock == 9
    states = gate.traces(sale.pk, [str(p.purchase_id) for p in purchases])
    assert states == [gate.Trace("ordered"), gate.Trace("rejected", "failed")]


def test_settle_an_order_that_ended_before_gives_its_unit_back_once() -> None:
    sale = FlashSaleFactory(primed=True)
    purchase = bought(sale, UserFactory().pk)
    creation.create_orders(sale_id=sale.pk, purchases=[purchase])
    services.cancel_order(purchase.purchase_id, actor="x")

    again = creation.create_orders(sale_id=sale.pk, purchases=[purchase])
    services.settle(sale.pk, again)

    assert (gate.snapshot(sale.pk).stock, gate.snapshot(sale.pk).claims) == (10, {})


def duplicate_of(live: Order) -> list[Order]:
    """A second purchase that a gate without memory let in."""
    gate.forget(live.sale_id)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(priming, "_buyers", lambda sale: {})
        priming.prime(live.sale_id)
    purchase = bought(live.sale, live.user_id or 0)
    return creation.create_orders(sale_id=live.sale_id, purchases=[purchase])


def test_settle_a_duplicate_adopts_the_live_order() -> None:
    live = OrderFactory()
    rejected = duplicate_of(live)

    services.settle(live.sale_id, rejected)

    assert [order.code for order in rejected] == [Rejection.DUPLICATE]
    assert list(gate.buyers(live.sale_id)) == [(live.user_id, str(live.pk), "o")]
    assert gate.snapshot(live.sale_id).stock == 9


def test_settle_a_duplicate_frees_the_buyer_if_the_live_order_ends_meanwhile(
    run_during: RunDuring,
) -> None:
    live = OrderFactory()
    rejected = duplicate_of(live)
    run_during(gate, "settle", lambda: services.cancel_order(live.pk, actor="x"))

    services.settle(live.sale_id, rejected)

    assert list(gate.buyers(live.sale_id)) == []


def test_settle_is_not_done_while_redis_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    order = OrderFactory()
    monkeypatch.setattr(gate, "settle", away)

    assert not services.settle(order.sale_id, [order])


def test_settle_loads_a_gate_that_got_lost() -> None:
    order = OrderFactory()

    assert not services.settle(order.sale_id, [order])
    assert (gate.snapshot(order.sale_id).stock, services.settle(order.sale_id, [order])) == (
        9,
        True,
    )


def test_settle_a_sale_that_is_gone_does_not_fail(caplog: pytest.LogCaptureFixture) -> None:
    orders = creation.create_orders(
        sale_id=404, purchases=[Purchase(uuid_utils.compat.uuid7(), 1, 1)]
    )

    assert not services.settle(404, orders)
    assert "sale 404 is gone" in caplog.text
