"""Celery's way into the services: what is sent, what is repeated. Nothing runs eagerly."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
import uuid_utils.compat
from celery.exceptions import Retry
from django.db import OperationalError
from kombu.exceptions import OperationalError as BrokerError
from pytest_django import Settings

from inventory import gate
from inventory.models import FlashSale
from orders import creation, services, tasks
from orders.models import Order, Status
from tests.factories import FlashSaleFactory, OrderFactory, UserFactory

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """(task, eta or arguments) of each message that would go to the broker."""
    messages: list[tuple[str, Any]] = []
    monkeypatch.setattr(
        tasks.expire_orders,
        "apply_async",
        lambda **options: messages.append(("expire_orders", options["eta"])),
    )
    monkeypatch.setattr(
        tasks.create_orders, "delay", lambda *args: messages.append(("create_orders", args))
    )
    return messages


def admitted(sale: FlashSale) -> list[Any]:
    user, purchase_id = UserFactory().pk, str(uuid_utils.compat.uuid7())
    gate.reserve(sale.pk, [gate.Entry(user, purchase_id)], limited=False)
    return [purchase_id, user, 1]


# --- create_orders --------------------------------------------------------------------------------


def test_create_orders_makes_settles_tells_and_starts_one_timer(
    sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = FlashSaleFactory(primed=True)
    entries = [admitted(sale) for _ in range(3)]
    told: list[Order] = []
    monkeypatch.setattr(services, "tell_results", told.extend)

    tasks.create_orders(sale.pk, entries)

    orders = list(Order.objects.order_by("pk"))
    assert [str(order.pk) for order in orders] == sorted(entry[0] for entry in entries)
    assert sorted(told, key=lambda o: o.pk) == orders
    assert gate.snapshot(sale.pk).claims == {}
    assert len(sent) == 1
    assert sent[0][1] >= max(order.pay_before for order in orders)


def test_create_orders_delivered_again_changes_nothing(sent: list[Any]) -> None:
    sale = FlashSaleFactory(primed=True)
    entries = [admitted(sale)]

    for _ in range(3):
        tasks.create_orders(sale.pk, entries)

    assert Order.objects.count() == 1
    assert gate.snapshot(sale.pk).stock == 9
    assert len(sent) == 1


def test_create_orders_leaves_what_it_cannot_read(sent: list[Any]) -> None:
    sale = FlashSaleFactory(primed=True)

    tasks.create_orders(sale.pk, [["rubbish", 1, 1], admitted(sale)])

    assert Order.objects.count() == 1


def test_create_orders_of_a_sale_that_is_gone_ends(sent: list[Any]) -> None:
    tasks.create_orders(404, [[str(uuid_utils.compat.uuid7()), UserFactory().pk, 1]])

    assert (Order.objects.count(), sent) == (0, [])


def test_create_orders_is_tried_again_if_the_database_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def away(**kwargs: Any) -> Any:
        raise OperationalError("gone")

    monkeypatch.setattr(creation, "create_orders", away)
    monkeypatch.setattr(
        tasks.create_orders, "retry", lambda *args, **options: Retry("later", options["exc"])
    )

    with pytest.raises(Retry) as caught:
        tasks.create_orders(1, [])
    assert isinstance(caught.value.exc, OperationalError)


# --- timers ---------------------------------------------------------------------------------------


def unpaid(pay_before: datetime) -> Order:
    return Order(status=Status.UNPAID, pay_before=pay_before)


def test_start_timer_has_one_message_for_each_slot(sent: list[Any], settings: Settings) -> None:
    settings.PAYMENT_WINDOW = 100  # slots of one second
    noon = datetime(2030, 1, 1, 12, tzinfo=UTC)
    for tenths in (1, 5, 9, 11):
        tasks.start_timer([unpaid(noon + timedelta(seconds=tenths / 10))])

    assert [eta for _, eta in sent] == [noon + timedelta(seconds=n) for n in (1, 2)]


def test_start_timer_never_fires_early(sent: list[Any], settings: Settings) -> None:
    settings.PAYMENT_WINDOW = 3
    late = datetime(2030, 1, 1, 12, 0, 0, 10_000, tzinfo=UTC)

    tasks.start_timer([unpaid(late), unpaid(late - timedelta(seconds=1))])

    assert late <= sent[0][1] <= late + timedelta(seconds=0.03)


@pytest.mark.parametrize("window", [20 * 60 + 1, 24 * 3600])
def test_start_timer_leaves_a_long_window_to_the_sweep(
    sent: list[Any], settings: Settings, window: int
) -> None:
    settings.PAYMENT_WINDOW = window

    tasks.start_timer([OrderFactory()])

    assert sent == []


def test_start_timer_has_none_for_rejections_and_ended_orders(sent: list[Any]) -> None:
    tasks.start_timer([OrderFactory(rejected=True), OrderFactory(expired=True)])

    assert sent == []


def test_start_timer_keeps_its_slot_no_longer_than_needed(
    sent: list[Any], redis_client: redis.Redis, settings: Settings
) -> None:
    settings.PAYMENT_WINDOW = 100

    tasks.start_timer([OrderFactory()])

    (lock,) = redis_client.scan_iter("*lock:timer*")
    assert 100 < redis_client.ttl(lock) <= 160


def test_start_timer_survives_the_loss_of_redis_and_of_the_broker(
    sent: list[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def gone(**options: Any) -> Any:
        raise BrokerError("the broker is away")

    def away() -> Any:
        raise gate.GateError("Redis is away")

    monkeypatch.setattr(tasks, "sync_client", away)
    tasks.start_timer([OrderFactory()])
    assert len(sent) == 1

    monkeypatch.setattr(tasks.expire_orders, "apply_async", gone)
    tasks.start_timer([OrderFactory()])
    assert "the sweep has to do" in caplog.text


# --- the periodic ones ----------------------------------------------------------------------------


def test_recover_reservations_queues_again(sent: list[Any], settings: Settings) -> None:
    settings.ADMIT_RETRY_AFTER = 0
    sale = FlashSaleFactory(primed=True)
    entry = admitted(sale)

    tasks.recover_reservations()

    assert sent == [("create_orders", (sale.pk, [entry]))]


@pytest.mark.parametrize("task", [tasks.expire_orders, tasks.sweep_expired])
def test_timer_and_sweep_expire_what_is_due(task: Any) -> None:
    overdue, other = OrderFactory(overdue=True), OrderFactory()

    task()

    overdue.refresh_from_db()
    other.refresh_from_db()
    assert (overdue.status, other.status) == (Status.EXPIRED, Status.UNPAID)


def test_sweep_releases_and_reconcile_sales_repair() -> None:
    sale = FlashSaleFactory()
    OrderFactory(sale=sale, expired=True)

    tasks.reconcile_sales()
    tasks.sweep_releases()

    assert gate.snapshot(sale.pk).stock == 10
    assert Order.objects.get().gate_released_at is not None


def test_visibility_timeout_outlasts_every_timer(settings: Any) -> None:
    """Over Redis a message that waits for its time comes again after this."""
    options = settings.CELERY_BROKER_TRANSPORT_OPTIONS

    assert options["visibility_timeout"] >= 4 * settings.PAYMENT_WINDOW
    assert options["visibility_timeout"] >= 2 * settings.TIMER_LONGEST


def test_no_message_ends_by_the_clock_of_a_worker(settings: Any) -> None:
    """`expires` would compare the clock of beat with that of the worker."""
    for entry in settings.CELERY_BEAT_SCHEDULE.values():
        assert "expires" not in entry.get("options", {})
