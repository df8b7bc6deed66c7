"""Sales and their units in the database, and what the gate hears of them."""

from datetime import timedelta
from typing import Any

import pytest
import uuid_utils.compat
from django.core.exceptions import ValidationError
from django.db import IntegrityError, OperationalError, transaction
from django.utils import timezone

from inventory import gate, services
from inventory.models import FlashSale, Product, StockAdjustment
from orders import audit, priming, repair
from tests.conftest import RunDuring
from tests.factories import FlashSaleFactory, OrderFactory, ProductFactory, UserFactory

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)
LIMITED = pytest.mark.postgres  # the columns of SQLite have no such limits


@pytest.fixture
def sale() -> FlashSale:
    made: FlashSale = FlashSaleFactory(primed=True)
    return made


def admission(sale: FlashSale, quantity: int = 1) -> gate.Admission:
    entry = gate.Entry(UserFactory().pk, str(uuid_utils.compat.uuid7()), quantity)
    return gate.reserve(sale.pk, [entry], limited=False).verdicts[0].admission


def stock(sale: FlashSale) -> int | None:
    return gate.snapshot(sale.pk).stock


def quantity(sale: FlashSale) -> int:
    return FlashSale.objects.get(pk=sale.pk).quantity


def away(*args: Any, **kwargs: Any) -> Any:
    raise gate.GateError("Redis is away")


# --- create_sale ----------------------------------------------------------------------------------


def new_sale(**changes: Any) -> FlashSale:
    now = timezone.now()
    arguments: dict[str, Any] = {
        "name": "Kettle",
        "price_cents": 990,
        "quantity": 5,
        "starts_at": now,
        "ends_at": now + HOUR,
    }
    return services.create_sale(**arguments | changes)


def test_create_sale_makes_the_sale_and_its_product() -> None:
    sale = new_sale(list_price_cents=1990, per_buyer=2, rebuy=False)

    assert Product.objects.get().name == "Kettle"
    assert (sale.quantity, sale.allocated, sale.currency) == (5, 0, "CNY")
    assert (sale.per_buyer, sale.rebuy, sale.paused, sale.revision) == (2, False, False, 0)


def test_create_sale_takes_the_product_of_that_name() -> None:
    product = ProductFactory(name="Kettle", description="hot")

    assert new_sale().product == product
    assert Product.objects.get().description == "hot"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"price_cents": 0}, "__all__"),
        ({"price_cents": -1}, "price_cents"),
        ({"quantity": -1}, "quantity"),
        pytest.param({"quantity": 2**31}, "quantity", marks=LIMITED),
        ({"per_buyer": 0}, "__all__"),
        pytest.param({"per_buyer": 40_000}, "per_buyer", marks=LIMITED),
        ({"list_price_cents": 10}, "__all__"),
        ({"ends_at": timezone.now() - HOUR}, "__all__"),
    ],
)
def test_create_sale_refuses_what_makes_no_sense(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        new_sale(**changes)

    assert list(caught.value.message_dict) == [field]
    assert (Product.objects.count(), FlashSale.objects.count()) == (0, 0)


# --- settings that the gate must hear of ----------------------------------------------------------


def test_pause_and_resume_reach_the_gate(sale: FlashSale) -> None:
    assert services.pause_sale(sale.pk)
    assert admission(sale) is gate.Admission.PAUSED

    assert services.resume_sale(sale.pk)
    assert admission(sale) is gate.Admission.RESERVED
    sale.refresh_from_db()
    assert (sale.paused, sale.revision) == (False, 2)


def test_close_reaches_the_gate(sale: FlashSale) -> None:
    assert services.close_sale(sale.pk)

    assert admission(sale) is gate.Admission.CLOSED
    assert not services.close_sale(sale.pk)


def test_close_leaves_a_sale_that_has_not_begun() -> None:
    assert not services.close_sale(FlashSaleFactory(scheduled=True).pk)


def test_change_window_reaches_the_gate(sale: FlashSale) -> None:
    later = timezone.now() + HOUR

    assert services.change_window(sale.pk, starts_at=later, ends_at=later + HOUR)
    assert admission(sale) is gate.Admission.NOT_OPEN


def test_change_window_refuses_an_end_before_the_start(sale: FlashSale) -> None:
    with pytest.raises(ValidationError, match="after the start"):
        services.change_window(sale.pk, starts_at=sale.ends_at, ends_at=sale.starts_at)

    assert FlashSale.objects.get(pk=sale.pk).revision == 0


@pytest.mark.parametrize("call", [services.pause_sale, services.resume_sale, services.close_sale])
def test_settings_of_an_unknown_sale(call: Any) -> None:
    assert not call(404)


def test_settings_are_changed_though_redis_is_away(
    sale: FlashSale, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(gate, "configure", away)
        assert services.pause_sale(sale.pk)

    assert FlashSale.objects.get(pk=sale.pk).paused
    assert admission(sale) is gate.Admission.RESERVED
    repair.reconcile(sale.pk)
    assert admission(sale) is gate.Admission.PAUSED


def test_settings_told_in_the_wrong_order_end_at_the_newest(
    sale: FlashSale, run_during: RunDuring
) -> None:
    run_during(gate, "configure", lambda: services.resume_sale(sale.pk))

    services.pause_sale(sale.pk)

    assert not FlashSale.objects.get(pk=sale.pk).paused
    assert admission(sale) is gate.Admission.RESERVED


def test_settings_rolled_back_are_not_told(sale: FlashSale) -> None:
    with transaction.atomic():
        services.pause_sale(sale.pk)
        transaction.set_rollback(True)

    assert admission(sale) is gate.Admission.RESERVED


# --- allocate and release -------------------------------------------------------------------------


def test_allocate_takes_units_until_there_are_none(sale: FlashSale) -> None:
    assert services.allocate(sale.pk, 8)
    assert not services.allocate(sale.pk, 3)
    assert services.allocate(sale.pk, 2)
    assert FlashSale.objects.get(pk=sale.pk).allocated == 10
    assert not services.allocate(404, 1)


def test_release_gives_back_no_more_than_was_taken(sale: FlashSale) -> None:
    services.allocate(sale.pk, 2)
    services.release(sale.pk, 1)

    with pytest.raises(IntegrityError):
        services.release(sale.pk, 2)
    assert FlashSale.objects.get(pk=sale.pk).allocated == 1


# --- more and fewer units -------------------------------------------------------------------------


def test_adjust_stock_adds_units_to_both_sides(sale: FlashSale) -> None:
    actor = UserFactory()

    assert services.adjust_stock(sale.pk, delta=5, reason="found more", actor=actor) == 5

    assert (quantity(sale), stock(sale)) == (15, 15)
    booked = StockAdjustment.objects.get()
    assert (booked.delta, booked.quantity_after, booked.reason) == (5, 15, "found more")
    assert (booked.actor, booked.gate_applied_at is not None) == (actor, True)


def test_adjust_stock_takes_at_most_what_is_unsold(sale: FlashSale) -> None:
    for _ in range(4):
        admission(sale)

    assert services.adjust_stock(sale.pk, delta=-9, reason="broken") == -6

    assert (quantity(sale), stock(sale)) == (4, 0)
    booked = StockAdjustment.objects.get()
    assert (booked.delta, booked.quantity_after) == (-6, 4)
    assert services.adjust_stock(sale.pk, delta=-1, reason="broken") == 0
    assert StockAdjustment.objects.count() == 1


def test_adjust_stock_gives_back_what_the_database_refuses(
    sale: FlashSale, run_during: RunDuring
) -> None:
    """The gate had units too many: orders hold them by now."""
    services.allocate(sale.pk, 8)

    assert services.adjust_stock(sale.pk, delta=-5, reason="broken") == 0

    assert (quantity(sale), stock(sale)) == (10, 10)
    assert StockAdjustment.objects.count() == 0


def test_adjust_stock_loads_a_gate_before_it_takes_units_out() -> None:
    sale = FlashSaleFactory()

    assert services.adjust_stock(sale.pk, delta=-3, reason="broken") == -3

    assert (quantity(sale), stock(sale)) == (7, 7)


def test_adjust_stock_says_that_the_gate_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sale = FlashSaleFactory()
    monkeypatch.setattr("orders.priming.prime", lambda sale_id: False)

    with pytest.raises(ValidationError, match="Try again") as caught:
        services.adjust_stock(sale.pk, delta=-3, reason="broken")

    assert caught.value.code == "not_primed"
    assert quantity(sale) == 10


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"sale_id": 404}, "no such sale"),
        ({"delta": 2**31}, "Too many"),
        ({"delta": -(2**31)}, "Too many"),
        ({"reason": ""}, "blank"),
        ({"reason": "x" * 201}, "200 characters"),
    ],
)
@pytest.mark.parametrize("delta", [1, -1])
def test_adjust_stock_refuses_what_makes_no_sense(
    sale: FlashSale, change: dict[str, Any], text: str, delta: int
) -> None:
    arguments: dict[str, Any] = {"sale_id": sale.pk, "delta": delta, "reason": "why", **change}

    with pytest.raises(ValidationError, match=text):
        services.adjust_stock(arguments.pop("sale_id"), **arguments)

    assert (quantity(sale), stock(sale), StockAdjustment.objects.count()) == (10, 10, 0)


def test_adjust_stock_by_nothing_does_nothing(sale: FlashSale) -> None:
    assert services.adjust_stock(sale.pk, delta=0, reason="") == 0
    assert StockAdjustment.objects.count() == 0


def test_adjust_stock_adds_units_though_redis_is_away(
    sale: FlashSale, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(gate, "adjust", away)
        assert services.adjust_stock(sale.pk, delta=5, reason="more") == 5

    assert (quantity(sale), stock(sale)) == (15, 10)
    repair.sweep_releases()
    assert stock(sale) == 15


def test_adjust_stock_takes_nothing_while_redis_is_away(
    sale: FlashSale, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(gate, "adjust", away)
        with pytest.raises(gate.GateError):
            services.adjust_stock(sale.pk, delta=-5, reason="fewer")

    assert (quantity(sale), stock(sale)) == (10, 10)


def test_adjust_stock_that_dies_between_gate_and_database_is_reconciled(
    sale: FlashSale, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*args: Any) -> Any:
        raise OperationalError("connection lost")

    with monkeypatch.context() as patch:
        patch.setattr(services, "_book", gone)
        with pytest.raises(OperationalError):
            services.adjust_stock(sale.pk, delta=-5, reason="fewer")

    assert (quantity(sale), stock(sale)) == (10, 5)
    assert not audit.audit(sale.pk)["ok"]
    assert repair.reconcile(sale.pk) == ["gate stock corrected from 5 to 10"]
    assert audit.audit(sale.pk)["ok"]


def test_adjust_stock_counts_in_a_gate_that_is_loaded_between(
    sale: FlashSale, run_during: RunDuring
) -> None:
    """The gate gets lost after it gave the units, and is loaded with the old quantity."""

    def lose_and_load() -> None:
        gate.forget(sale.pk)
        priming.prime(sale.pk)

    run_during(services, "_book", lose_and_load)

    assert services.adjust_stock(sale.pk, delta=-5, reason="fewer") == -5
    assert (quantity(sale), stock(sale)) == (5, 5)


def test_adjust_stock_never_takes_a_unit_from_an_order() -> None:
    order = OrderFactory(sale=FlashSaleFactory(quantity=1))

    assert services.adjust_stock(order.sale_id, delta=-1, reason="fewer") == 0
    assert quantity(order.sale) == 1
