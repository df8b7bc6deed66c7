"""What brings everything back to rest."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis
import uuid_utils.compat
from django.utils import timezone
from pytest_django import Settings

from inventory import gate, keys
from inventory import services as inventory
from inventory.models import FlashSale, StockAdjustment
from orders import accounting, audit, creation, priming, repair, services
from orders.creation import Purchase
from orders.models import Order, OrderEvent, Payment, Status
from tests.conftest import RunDuring
from tests.factories import FlashSaleFactory, OrderFactory, PaymentFactory, UserFactory

pytestmark = pytest.mark.django_db(transaction=True)

LONG_AGO = timedelta(days=9)


@pytest.fixture
def sale() -> FlashSale:
    made: FlashSale = FlashSaleFactory(primed=True)
    return made


def reserved(sale: FlashSale, quantity: int = 1) -> Purchase:
    purchase = Purchase(uuid_utils.compat.uuid7(), UserFactory().pk, quantity)
    entry = gate.Entry(purchase.user_id, str(purchase.purchase_id), quantity)
    verdict = gate.reserve(sale.pk, [entry], limited=False).verdicts[0]
    assert verdict.admission is gate.Admission.RESERVED
    return purchase


def stock(sale: FlashSale) -> int | None:
    return gate.snapshot(sale.pk).stock


def claims(sale: FlashSale) -> int:
    return len(gate.snapshot(sale.pk).claims)


def recover() -> list[tuple[int, list[Purchase]]]:
    return [(sale_id, list(purchases)) for sale_id, purchases in repair.recover_reservations()]


# --- recover_reservations -------------------------------------------------------------------------


def test_recover_queues_what_waited_too_long(sale: FlashSale, settings: Settings) -> None:
    first, second = reserved(sale), reserved(sale)
    assert recover() == []

    settings.ADMIT_RETRY_AFTER = 0

    assert recover() == [(sale.pk, [first, second])]


def test_recover_settles_what_has_a_row(sale: FlashSale, settings: Settings) -> None:
    settings.ADMIT_RETRY_AFTER = 0
    purchase = reserved(sale)
    creation.create_orders(sale_id=sale.pk, purchases=[purchase])

    assert recover() == []

    assert (claims(sale), stock(sale)) == (0, 9)


def test_recover_sends_a_purchase_alone_from_its_third_attempt_and_gives_up_after_the_fifth(
    sale: FlashSale, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """A purchase that kills its worker leaves no trace but the attempts that the gate counts."""
    settings.ADMIT_RETRY_AFTER = 0
    poison, other = reserved(sale), reserved(sale)

    rounds = [[purchases for _, purchases in recover()] for _ in range(5)]
    assert rounds == [[[poison, other]]] * 2 + [[[poison], [other]]] * 3
    creation_of_other = creation.create_orders(sale_id=sale.pk, purchases=[other])
    services.settle(sale.pk, creation_of_other)

    assert recover() == []

    rejected = Order.objects.get(pk=poison.purchase_id)
    assert (rejected.status, rejected.code) == (Status.REJECTED, "failed")
    assert Order.objects.get(pk=other.purchase_id).status == Status.UNPAID
    assert (claims(sale), stock(sale)) == (0, 9)
    assert "giving up on 1 purchases" in caplog.text
    assert recover() == []


def test_recover_gives_up_what_is_too_old(sale: FlashSale, settings: Settings) -> None:
    settings.ADMIT_RETRY_AFTER, settings.ADMIT_GIVE_UP_AFTER = 0, 0
    purchase = reserved(sale, 1)

    assert recover() == []

    assert Order.objects.get(pk=purchase.purchase_id).code == "failed"
    assert (claims(sale), stock(sale)) == (0, 10)


def test_recover_gives_up_a_buyer_whose_account_is_gone(
    sale: FlashSale, settings: Settings
) -> None:
    settings.ADMIT_RETRY_AFTER, settings.ADMIT_GIVE_UP_AFTER = 0, 0
    gate.reserve(sale.pk, [gate.Entry(10**6, str(uuid_utils.compat.uuid7()))], limited=False)

    recover()

    assert (claims(sale), stock(sale), list(gate.buyers(sale.pk))) == (0, 10, [])


def test_recover_loads_missing_gates() -> None:
    running, scheduled = FlashSaleFactory(), FlashSaleFactory(scheduled=True)
    over = FlashSaleFactory(
        starts_at=timezone.now() - LONG_AGO, ends_at=timezone.now() - timedelta(days=3)
    )

    recover()

    assert gate.stocks([running.pk, scheduled.pk, over.pk]) == {
        running.pk: 10,
        scheduled.pk: 10,
        over.pk: None,
    }


def test_recover_looks_after_a_sale_whose_start_was_put_off(
    sale: FlashSale, settings: Settings
) -> None:
    settings.ADMIT_RETRY_AFTER = 0
    purchase = reserved(sale)
    later = timezone.now() + timedelta(hours=1)
    inventory.change_window(sale.pk, starts_at=later, ends_at=later + timedelta(hours=1))

    assert recover() == [(sale.pk, [purchase])]


def test_recover_of_one_sale_does_not_suffer_from_another(
    settings: Settings, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    settings.ADMIT_RETRY_AFTER = 0
    broken, sale = FlashSaleFactory(primed=True), FlashSaleFactory(primed=True)
    redis_client.zadd(keys.of_sale(broken.pk, "pending"), {"no uuid": 1})
    redis_client.hset(keys.of_sale(broken.pk, "claims"), "no uuid", "1|1|call|1")
    purchase = reserved(sale)

    assert recover() == [(sale.pk, [purchase])]
    assert f"sale {broken.pk}: reservations not recovered" in caplog.text


# --- sweep_releases -------------------------------------------------------------------------------


def test_sweep_applies_adjustments_that_the_gate_missed(
    sale: FlashSale, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*args: Any) -> Any:
        raise gate.GateError("Redis is away")

    with monkeypatch.context() as patch:
        patch.setattr(gate, "adjust", away)
        assert inventory.adjust_stock(sale.pk, delta=5, reason="more") == 5
    assert stock(sale) == 10

    assert [repair.sweep_releases(), repair.sweep_releases()] == [1, 0]
    assert stock(sale) == 15


def test_sweep_empties_more_than_one_chunk(
    sale: FlashSale, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "CHUNK", 2)
    for _ in range(5):
        OrderFactory(sale=sale, expired=True)

    assert repair.sweep_releases() == 5
    assert Order.objects.filter(gate_released_at=None).count() == 0
    assert stock(sale) == 10  # the gate never knew these buyers


# --- reconcile ------------------------------------------------------------------------------------


def break_allocated(sale: FlashSale, client: redis.Redis) -> None:
    FlashSale.objects.filter(pk=sale.pk).update(allocated=5)


def break_stock(sale: FlashSale, client: redis.Redis) -> None:
    client.incrby(keys.of_sale(sale.pk, "stock"), 3)


def break_stock_down(sale: FlashSale, client: redis.Redis) -> None:
    client.decrby(keys.of_sale(sale.pk, "stock"), 3)


def lose_gate(sale: FlashSale, client: redis.Redis) -> None:
    gate.forget(sale.pk)


def lose_settings(sale: FlashSale, client: redis.Redis) -> None:
    client.delete(keys.of_sale(sale.pk, "info"))


def hold_up_a_buyer(sale: FlashSale, client: redis.Redis) -> None:
    """An entry of an order that has ended, while stock is right."""
    over = OrderFactory(sale=sale, expired=True, gate_released_at=timezone.now())
    client.hset(keys.of_sale(sale.pk, "buyers"), str(over.user_id), f"{over.pk}|o")


DRIFTS: dict[Callable[[FlashSale, redis.Redis], None], list[str]] = {
    break_allocated: ["allocated corrected from 5 to 1"],
    break_stock: ["gate stock corrected from 12 to 9"],
    break_stock_down: ["gate stock corrected from 6 to 9"],
    lose_gate: ["gate loaded"],
    lose_settings: ["gate loaded"],
}


@pytest.mark.parametrize("drift", DRIFTS)
def test_reconcile_repairs_drift_and_says_so(
    redis_client: redis.Redis, drift: Callable[[FlashSale, redis.Redis], None]
) -> None:
    sale = FlashSaleFactory()
    OrderFactory(sale=sale, paid=True)
    priming.prime(sale.pk)
    drift(sale, redis_client)
    assert not audit.audit(sale.pk)["ok"]

    assert repair.reconcile(sale.pk, dry_run=True) == DRIFTS[drift]
    assert not audit.audit(sale.pk)["ok"]
    assert repair.reconcile(sale.pk) == DRIFTS[drift]

    report = audit.audit(sale.pk)
    assert report["ok"], report
    assert (report["sales"][0]["gate"], report["sales"][0]["available"]) == (9, 9)
    assert repair.reconcile(sale.pk) == []


def test_reconcile_frees_buyers_of_ended_orders_even_if_stock_is_right(
    sale: FlashSale, redis_client: redis.Redis
) -> None:
    hold_up_a_buyer(sale, redis_client)
    assert audit.audit(sale.pk)["sales"][0]["violations"] == [
        "1 buyers are held up by orders that have ended"
    ]

    lines = repair.reconcile(sale.pk)

    assert len(lines) == 2  # what it gave back was one unit too many
    assert (list(gate.buyers(sale.pk)), stock(sale)) == ([], 10)
    assert audit.audit(sale.pk)["ok"]


def test_reconcile_changes_nothing_while_units_are_under_way(
    sale: FlashSale, redis_client: redis.Redis
) -> None:
    purchase = reserved(sale)
    creation.create_orders(sale_id=sale.pk, purchases=[purchase])
    break_stock(sale, redis_client)

    assert repair.reconcile(sale.pk) == []
    assert stock(sale) == 12


def test_reconcile_counts_the_journal(sale: FlashSale, redis_client: redis.Redis) -> None:
    reserved(sale)
    break_stock(sale, redis_client)

    assert repair.reconcile(sale.pk) == ["gate stock corrected from 12 to 9"]


def test_reconcile_leaves_a_gate_that_changes_meanwhile(
    sale: FlashSale, redis_client: redis.Redis, run_during: RunDuring
) -> None:
    break_stock(sale, redis_client)
    run_during(gate, "reconcile", lambda: reserved(sale))

    assert repair.reconcile(sale.pk) == []
    assert stock(sale) == 12
    assert repair.reconcile(sale.pk) == ["gate stock corrected from 12 to 9"]


def test_reconcile_tells_the_gate_settings_that_it_missed(sale: FlashSale) -> None:
    FlashSale.objects.filter(pk=sale.pk).update(paused=True, revision=5)

    assert repair.reconcile(sale.pk) == []

    entry = gate.Entry(1, str(uuid_utils.compat.uuid7()))
    assert gate.reserve(sale.pk, [entry]).verdicts[0].admission is gate.Admission.PAUSED


def test_reconcile_of_all_sales_names_them(redis_client: redis.Redis) -> None:
    first, second = FlashSaleFactory(primed=True), FlashSaleFactory()
    break_stock(first, redis_client)

    assert repair.reconcile() == [
        f"sale {first.pk}: gate stock corrected from 13 to 10",
        f"sale {second.pk}: gate loaded",
    ]


def test_reconcile_of_all_sales_looks_at_whatever_audit_looks_at() -> None:
    order = OrderFactory(paid=True, sale__closed=True)
    old = {"starts_at": timezone.now() - 2 * LONG_AGO, "ends_at": timezone.now() - LONG_AGO}
    FlashSale.objects.update(allocated=0, **old)
    assert audit.audit()["ok"] is False

    lines = repair.reconcile()

    assert lines == [f"sale {order.sale_id}: allocated corrected from 0 to 1"]
    assert audit.audit()["ok"] is True
    assert gate.stocks([order.sale_id]) == {order.sale_id: None}


def test_reconcile_sales_removes_the_keys_of_a_sale_a_week_after_its_end(
    sale: FlashSale, redis_client: redis.Redis
) -> None:
    over = FlashSaleFactory(
        starts_at=timezone.now() - LONG_AGO,
        ends_at=timezone.now() - timedelta(days=8),
        primed=True,
    )

    repair.reconcile_sales()

    assert gate.stocks([sale.pk, over.pk]) == {sale.pk: 10, over.pk: None}
    assert list(redis_client.scan_iter(f"*{{{over.pk}}}*")) == []


def test_reconcile_of_an_unknown_sale() -> None:
    with pytest.raises(FlashSale.DoesNotExist):
        repair.reconcile(404)


# --- reset_sale -----------------------------------------------------------------------------------


def test_reset_sale_goes_back_to_before_the_start(sale: FlashSale) -> None:
    unpaid = OrderFactory(sale=sale)
    PaymentFactory(order=unpaid)
    OrderFactory(sale=sale, rejected=True)
    inventory.adjust_stock(sale.pk, delta=5, reason="more")
    other = OrderFactory()

    assert repair.reset_sale(sale.pk, dry_run=True) == repair.reset_sale(sale.pk)

    sale.refresh_from_db()
    assert (sale.quantity, sale.allocated, stock(sale)) == (10, 0, 10)
    assert list(Order.objects.all()) == [other]
    assert OrderEvent.objects.exclude(order=other).count() == 0
    assert (Payment.objects.count(), StockAdjustment.objects.count()) == (0, 0)
    assert audit.audit(sale.pk)["ok"]


def test_reset_sale_lifts_a_pause_in_the_gate_too(sale: FlashSale) -> None:
    inventory.pause_sale(sale.pk)

    planned = repair.reset_sale(sale.pk, dry_run=True)
    was_paused = FlashSale.objects.get(pk=sale.pk).paused
    done = repair.reset_sale(sale.pk)

    assert was_paused
    assert planned == done
    assert done[-1] == "no longer paused"
    assert not FlashSale.objects.get(pk=sale.pk).paused
    reserved(sale)


@pytest.mark.parametrize("trait", ["paid", "refunded"])
def test_reset_sale_refuses_a_sale_with_paid_orders_unless_forced(
    sale: FlashSale, trait: str
) -> None:
    OrderFactory(sale=sale, **{trait: True})

    with pytest.raises(repair.NotResettable):
        repair.reset_sale(sale.pk)
    assert Order.objects.count() == 1

    repair.reset_sale(sale.pk, force=True)
    assert (Order.objects.count(), accounting.units_held(sale.pk), stock(sale)) == (0, 0, 10)


def test_reset_sale_refuses_while_purchases_are_under_way(sale: FlashSale) -> None:
    reserved(sale)

    with pytest.raises(repair.NotResettable):
        repair.reset_sale(sale.pk)

    assert (claims(sale), stock(sale)) == (1, 9)
