"""Gateways are asked when their webhooks don't come, before an order expires, and to close."""

import threading
import time
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone
from pytest_django.fixtures import Settings

from orders import priming, repair, services
from orders.models import Order, Payment, Refund, Status, WebhookEvent
from orders.payments import asking, calls, providers
from orders.payments import services as payments
from orders.payments.providers import GatewayBusy, GatewayError, Report, Standing
from tests.factories import FlashSaleFactory, OrderFactory, PaymentFactory
from tests.orders.gateways import FakeGateway, taken, tell
from tests.orders.races import race

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)


def begun(**order: Any) -> Payment:
    """A payment whose buyer was sent to the gateway, and about which it is time to ask."""
    made: Payment = PaymentFactory(
        provider="fake",
        started=True,
        ask_at=timezone.now() - HOUR,
        **{f"order__{name}": value for name, value in order.items()},
    )
    return made


def just_due(**order: Any) -> Payment:
    return begun(pay_before=timezone.now() - timedelta(milliseconds=1), **order)


def states(payment: Payment) -> tuple[int, int]:
    payment.refresh_from_db()
    return Order.objects.get(pk=payment.order_id).status, payment.status


# --- start_payment --------------------------------------------------------------------------------


def test_start_payment_asks_the_gateway_once_and_remembers_its_address(
    gateway: FakeGateway,
) -> None:
    order = OrderFactory()

    first = payments.start_payment(order.pk, user_id=order.user_id)
    second = payments.start_payment(order.pk, user_id=order.user_id)

    assert first == second == (first[0], f"https://fake.example/{first[0].pk}")
    assert gateway.called("create") == 1
    assert first[0].order.pay_before == order.pay_before


def test_start_payment_plans_to_ask_soon_and_at_the_deadline_at_last(
    gateway: FakeGateway, settings: Settings
) -> None:
    settings.PAYMENT_QUERY_AFTER = 30
    late = OrderFactory(pay_before=timezone.now() + timedelta(seconds=5))
    early = OrderFactory()

    for order in (late, early):
        payments.start_payment(order.pk, user_id=order.user_id)

    assert late.payments.get().ask_at == late.pay_before
    assert abs(early.payments.get().ask_at - timezone.now()) < timedelta(seconds=31)


def test_start_payment_of_a_gateway_that_is_down_can_be_repeated(gateway: FakeGateway) -> None:
    order = OrderFactory()
    gateway.down = True
    with pytest.raises(GatewayError):
        payments.start_payment(order.pk, user_id=order.user_id)
    gateway.down = False

    payment, _ = payments.start_payment(order.pk, user_id=order.user_id)

    assert list(Payment.objects.all()) == [payment]


def test_start_payment_every_moment_does_not_move_the_deadline(gateway: FakeGateway) -> None:
    order = OrderFactory(pay_before=timezone.now() + timedelta(seconds=1))

    while timezone.now() < order.pay_before:
        try:
            payments.start_payment(order.pk, user_id=order.user_id)
        except payments.OrderNotPayable:
            break
    asking.ask_due()
    services.expire_orders()

    assert states(order.payments.get()) == (Status.EXPIRED, Payment.State.FAILED)
    assert Order.objects.get().pay_before == order.pay_before


def test_start_payment_with_another_provider_closes_the_first(gateway: FakeGateway) -> None:
    order = OrderFactory()
    first, _ = payments.start_payment(order.pk, user_id=order.user_id)

    second, _ = payments.start_payment(order.pk, user_id=order.user_id, provider="sandbox")
    asking.ask_due()

    assert gateway.calls[-1] == ("close", str(first.pk))
    assert states(first) == (Status.UNPAID, Payment.State.FAILED)
    assert states(second) == (Status.UNPAID, Payment.State.CREATED)
    assert asking.ask_due() == 0


def test_start_payment_with_another_provider_sends_back_what_the_first_took(
    gateway: FakeGateway,
) -> None:
    order = OrderFactory()
    first, _ = payments.start_payment(order.pk, user_id=order.user_id)
    second, _ = payments.start_payment(order.pk, user_id=order.user_id, provider="sandbox")
    tell(second)
    gateway.takes_the_money(first)

    asking.ask_due()

    assert states(second) == (Status.PAID, Payment.State.SUCCEEDED)
    assert Refund.objects.get().payment == first


# --- asking ---------------------------------------------------------------------------------------


def test_ask_due_finds_money_whose_webhook_was_lost(gateway: FakeGateway) -> None:
    payment = begun()
    gateway.takes_the_money(payment)

    assert asking.ask_due() == 1

    assert states(payment) == (Status.PAID, Payment.State.SUCCEEDED)
    assert WebhookEvent.objects.get().event_id == f"asked:{payment.pk}:payment.succeeded"


def test_ask_due_leaves_a_payment_alone_that_may_still_be_paid(gateway: FakeGateway) -> None:
    payment = begun()

    assert asking.ask_due() == 0
    assert asking.ask_due() == 0

    assert gateway.calls == [("query", str(payment.pk))]
    assert states(payment) == (Status.UNPAID, Payment.State.CREATED)


def test_ask_due_closes_what_nobody_paid_in_time(gateway: FakeGateway) -> None:
    payment = just_due()
    assert services.expire_orders() == 0  # Somebody may be paying right now.

    assert asking.ask_due() == 1

    assert [name for name, _ in gateway.calls] == ["query", "close"]
    assert states(payment) == (Status.UNPAID, Payment.State.FAILED)
    assert services.expire_orders() == 1


def test_ask_due_finds_money_that_was_taken_in_the_last_second(gateway: FakeGateway) -> None:
    payment = just_due()
    gateway.takes_the_money(payment)

    asking.ask_due()

    assert services.expire_orders() == 0
    assert states(payment) == (Status.PAID, Payment.State.SUCCEEDED)


def test_ask_due_comes_again_for_money_that_can_not_be_stopped(
    gateway: FakeGateway, settings: Settings
) -> None:
    payment = just_due(sale__quantity=1, sale__primed=True)
    gateway.closes = False
    assert asking.ask_due() == 0
    Order.objects.update(pay_before=timezone.now() - timedelta(minutes=1))
    services.expire_orders()
    gateway.takes_the_money(payment)
    Payment.objects.update(ask_at=timezone.now())

    assert asking.ask_due() == 1

    assert states(payment) == (Status.PAID, Payment.State.SUCCEEDED)


def test_ask_due_closes_the_payment_of_a_canceled_order(gateway: FakeGateway) -> None:
    order = OrderFactory(sale__primed=True)
    payment, _ = payments.start_payment(order.pk, user_id=order.user_id)
    services.cancel_order(order.pk, actor="buyer", reason="by the buyer")

    assert asking.ask_due() == 1

    assert states(payment) == (Status.CANCELED, Payment.State.FAILED)
    assert gateway.called("close") == 1


def test_ask_due_parks_another_amount_and_never_pays(gateway: FakeGateway) -> None:
    payment = begun()
    gateway.says[str(payment.pk)] = taken(payment)._replace(amount_cents=1)

    asking.ask_due()

    assert states(payment) == (Status.UNPAID, Payment.State.CREATED)
    assert WebhookEvent.objects.get().cause == "amount_mismatch"
    assert asking.ask_due() == 0


def test_ask_due_learns_of_a_refund_at_the_provider(gateway: FakeGateway) -> None:
    payment = begun()
    gateway.says[str(payment.pk)] = taken(payment)._replace(standing=Standing.REFUNDED)

    asking.ask_due()

    assert states(payment) == (Status.REFUNDED, Payment.State.SUCCEEDED)


def test_ask_due_learns_of_a_failure(gateway: FakeGateway) -> None:
    payment = begun()
    gateway.says[str(payment.pk)] = Report(Standing.FAILED)

    assert asking.ask_due() == 1

    assert states(payment) == (Status.UNPAID, Payment.State.FAILED)


@pytest.mark.postgres
def test_ask_due_by_many_at_once_asks_once(gateway: FakeGateway) -> None:
    made = [begun() for _ in range(5)]

    race(*[asking.ask_due] * 4)

    assert sorted(pk for _, pk in gateway.calls) == sorted(str(p.pk) for p in made)


def test_expire_orders_waits_for_a_silent_gateway_one_sweep_at_most(
    gateway: FakeGateway, settings: Settings
) -> None:
    settings.SWEEP_INTERVAL = 5
    gateway.down = True
    payment = just_due()
    asking.ask_due()
    assert services.expire_orders() == 0

    Order.objects.update(pay_before=timezone.now() - timedelta(seconds=5))

    assert services.expire_orders() == 1
    assert states(payment) == (Status.EXPIRED, Payment.State.CREATED)


# --- a gateway that hangs -------------------------------------------------------------------------


def test_call_gives_up_in_time_and_then_refuses_at_once(
    gateway: FakeGateway, settings: Settings
) -> None:
    settings.PAYMENT_TIMEOUT = 0.2
    gateway.hang()
    bill = providers.bill(begun())
    began = time.monotonic()
    waiting = [calls.Call(gateway, partial(gateway.query, bill)) for _ in range(calls.slots())]

    with pytest.raises(GatewayBusy):
        calls.call(gateway, partial(gateway.query, bill))
    refused_after = time.monotonic() - began
    for call in waiting:
        with pytest.raises(GatewayBusy):
            call.result()
    all_after = time.monotonic() - began
    gateway.released.set()

    assert refused_after < 0.2
    assert 0.2 <= all_after < 1
    assert gateway.called("query") == calls.slots()


def test_call_refuses_inside_a_transaction(gateway: FakeGateway) -> None:
    """The control of all that says: no provider is called while locks are held."""
    with transaction.atomic(), pytest.raises(RuntimeError):
        calls.call(gateway, lambda: None)


def test_ask_due_leaves_a_gateway_that_hangs_after_the_first_question(
    gateway: FakeGateway, settings: Settings
) -> None:
    settings.PAYMENT_TIMEOUT = 0.2
    for _ in range(5):
        begun()
    gateway.hang()
    began = time.monotonic()

    asking.ask_due()
    took = time.monotonic() - began
    gateway.released.set()

    assert (gateway.called("query"), took < 1) == (1, True)


@pytest.mark.postgres
def test_start_payment_holds_no_lock_while_the_gateway_hangs(gateway: FakeGateway) -> None:
    order = OrderFactory()
    gateway.hang()

    def start() -> None:
        try:
            with pytest.raises(GatewayBusy):
                payments.start_payment(order.pk, user_id=order.user_id)
        finally:
            connection.close()

    thread = threading.Thread(target=start)
    thread.start()
    while not gateway.calls:
        time.sleep(0.01)
    with transaction.atomic(), connection.cursor() as cursor:
        # Fails at once if anybody holds any of these rows.
        for model in (Order, Payment):
            rows = model.objects.select_for_update(nowait=True)
            assert len(rows) == 1
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND state LIKE 'idle in transaction%%'"
            " AND pid <> pg_backend_pid()",
            (),
        )
        assert cursor.fetchone() == (0,)
    thread.join()
    gateway.released.set()


# --- reconcile ------------------------------------------------------------------------------------


def test_reconcile_repairs_lost_webhooks_and_says_so(gateway: FakeGateway) -> None:
    sale = FlashSaleFactory()
    payment = begun(sale=sale)
    priming.prime(sale.pk)
    Payment.objects.update(ask_at=timezone.now() + HOUR)  # Not due; reconcile asks anyway.
    gateway.takes_the_money(payment)

    told = repair.reconcile(sale.pk, dry_run=True)
    assert told == [f"payment {payment.pk}: succeeded, by its provider"]
    assert states(payment) == (Status.UNPAID, Payment.State.CREATED)

    assert repair.reconcile(sale.pk) == told
    assert states(payment) == (Status.PAID, Payment.State.SUCCEEDED)
    assert repair.reconcile(sale.pk) == []


def test_reconcile_decides_about_money_that_a_crash_left_behind(gateway: FakeGateway) -> None:
    sale = FlashSaleFactory(quantity=1, primed=True)
    order = OrderFactory(sale=sale, expired=True, gate_released_at=timezone.now())
    payment = PaymentFactory(order=order, captured=True)

    expected = [f"payment {payment.pk}: money decided about"]
    assert repair.reconcile(sale.pk, dry_run=True) == expected
    assert repair.reconcile(sale.pk) == expected

    assert states(payment) == (Status.PAID, Payment.State.SUCCEEDED)


def test_reconcile_says_which_gateway_does_not_answer(gateway: FakeGateway) -> None:
    payment = begun()
    priming.prime(payment.order.sale_id)
    gateway.down = True

    told = repair.reconcile(payment.order.sale_id)

    assert told == [f"payment {payment.pk}: not answered for: down"]
