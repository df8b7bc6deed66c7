"""Starting payments, and what providers' messages do to orders."""

import json
import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from orders import services as orders
from orders.models import Order, OrderEvent, Payment, Refund, Status, WebhookEvent
from orders.payments import captures, sandbox, services
from orders.payments.providers import SignatureInvalid, UnknownProvider
from tests.factories import OrderFactory, PaymentFactory, UserFactory

pytestmark = pytest.mark.django_db

Outcome = WebhookEvent.Outcome


def send(payment: Payment, kind: str = "payment.succeeded", **changes: Any) -> str:
    """A signed message about a payment, with some members changed."""
    raw, _ = sandbox.message(payment, kind)
    body = json.dumps(json.loads(raw) | changes).encode()
    return services.process_webhook("sandbox", body, {"x-signature": sandbox.sign(body)})


def status(order: Order) -> int:
    return Order.objects.values_list("status", flat=True).get(pk=order.pk)


# --- start_payment --------------------------------------------------------------------------------


def test_start_payment_copies_the_orders_amount_and_keeps_its_deadline() -> None:
    order = OrderFactory(quantity=2)

    payment, url = services.start_payment(order.pk, user_id=order.user_id, provider="sandbox")

    assert (payment.amount_cents, payment.currency, url) == (1980, "CNY", f"/cashier/{payment.pk}/")
    assert Order.objects.get(pk=order.pk).pay_before == order.pay_before


def test_start_payment_gives_the_active_payment_again() -> None:
    order = OrderFactory()

    first, _ = services.start_payment(order.pk, user_id=order.user_id)
    second, _ = services.start_payment(order.pk, user_id=order.user_id)

    assert first == second
    assert list(Payment.objects.all()) == [first]


def test_start_payment_makes_a_new_payment_after_a_failed_one() -> None:
    payment = PaymentFactory()
    send(payment, "payment.failed")

    again, _ = services.start_payment(payment.order_id, user_id=payment.order.user_id)

    assert again != payment


@pytest.mark.parametrize("trait", ["overdue", "paid", "canceled", "expired", "refunded"])
def test_start_payment_refuses_an_order_that_is_not_payable(trait: str) -> None:
    order = OrderFactory(**{trait: True})

    with pytest.raises(services.OrderNotPayable):
        services.start_payment(order.pk, user_id=order.user_id)

    assert Payment.objects.filter(status=Payment.State.CREATED).count() == 0


def test_start_payment_does_not_know_the_orders_of_others() -> None:
    order = OrderFactory()

    with pytest.raises(Order.DoesNotExist):
        services.start_payment(order.pk, user_id=UserFactory().pk)


def test_start_payment_does_not_know_rejected_purchases() -> None:
    order = OrderFactory(rejected=True)

    with pytest.raises(Order.DoesNotExist):
        services.start_payment(order.pk, user_id=order.user_id)


@pytest.mark.parametrize("provider", ["stripe", "nobody", "__class__"])
def test_start_payment_takes_only_providers_that_are_switched_on(provider: str) -> None:
    order = OrderFactory()

    with pytest.raises(UnknownProvider):
        services.start_payment(order.pk, user_id=order.user_id, provider=provider)


# --- process_webhook ------------------------------------------------------------------------------


def test_process_webhook_pays_the_order() -> None:
    payment = PaymentFactory()

    assert send(payment, event_id="e1") == Outcome.APPLIED

    payment.refresh_from_db()
    assert (payment.status, payment.use) == (Payment.State.SUCCEEDED, Payment.Use.ORDER)
    assert status(payment.order) == Status.PAID
    event = OrderEvent.objects.get(order=payment.order, kind="paid")
    assert (event.actor, event.reason) == ("sandbox", "e1")


def test_process_webhook_applies_a_repeated_message_once() -> None:
    payment = PaymentFactory()

    told = [send(payment, event_id="e1") for _ in range(3)]

    assert told == [Outcome.APPLIED] * 3
    assert WebhookEvent.objects.count() == 1
    assert OrderEvent.objects.filter(kind="paid").count() == 1


def test_process_webhook_ignores_a_second_message_about_the_same_success() -> None:
    payment = PaymentFactory()
    send(payment, event_id="e1")

    assert send(payment, event_id="e2") == Outcome.IGNORED

    assert OrderEvent.objects.filter(kind="paid").count() == 1


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"amount": "9.89"}, "amount_mismatch"),
        ({"amount": "10.90"}, "amount_mismatch"),
        ({"amount": "-9.90"}, "amount_mismatch"),
        ({"amount": ""}, "amount_mismatch"),
        ({"currency": "USD"}, "currency_mismatch"),
        ({"currency": ""}, "currency_mismatch"),
        ({"currency": "C\0Y"}, "currency_mismatch"),
        ({"order_id": str(uuid.uuid4())}, "order_mismatch"),
        ({"order_id": ""}, "order_mismatch"),
        ({"payment_id": str(uuid.uuid4())}, "unknown_payment"),
        ({"payment_id": "1' OR '1'='1"}, "unknown_payment"),
    ],
)
def test_process_webhook_parks_what_does_not_fit(changes: dict[str, str], cause: str) -> None:
    payment = PaymentFactory()

    assert send(payment, **changes) == Outcome.PARKED

    assert WebhookEvent.objects.get().cause == cause
    payment.refresh_from_db()
    assert (payment.status, status(payment.order)) == (Payment.State.CREATED, Status.UNPAID)


def test_process_webhook_ignores_types_it_does_not_know() -> None:
    payment = PaymentFactory()

    assert send(payment, type="payment.dreamed_of") == Outcome.IGNORED

    assert status(payment.order) == Status.UNPAID


def test_process_webhook_sends_the_second_capture_of_one_order_back() -> None:
    first = PaymentFactory()
    send(first, "payment.failed")
    second = PaymentFactory(order=first.order)

    assert send(second) == Outcome.APPLIED
    assert send(first) == Outcome.APPLIED

    refund = Refund.objects.get()
    assert (refund.payment, refund.cause) == (first, Refund.Cause.SECOND)
    assert status(first.order) == Status.PAID


def test_process_webhook_success_wins_over_a_failure_that_came_before() -> None:
    payment = PaymentFactory()

    assert send(payment, "payment.failed") == Outcome.APPLIED
    assert send(payment, "payment.succeeded") == Outcome.APPLIED

    assert status(payment.order) == Status.PAID


def test_process_webhook_failure_never_undoes_a_success() -> None:
    payment = PaymentFactory()
    send(payment, "payment.succeeded")

    assert send(payment, "payment.failed") == Outcome.IGNORED

    payment.refresh_from_db()
    assert (payment.status, status(payment.order)) == (Payment.State.SUCCEEDED, Status.PAID)


def test_process_webhook_believes_a_refund_that_nobody_asked_for() -> None:
    payment = PaymentFactory()
    send(payment)

    assert send(payment, "payment.refunded") == Outcome.APPLIED

    refund = Refund.objects.get()
    assert (refund.cause, refund.status) == (Refund.Cause.PROVIDER, Refund.State.DONE)
    order = Order.objects.get(pk=payment.order_id)
    assert (order.status, order.restocked) == (Status.REFUNDED, False)


def test_process_webhook_parks_a_refund_of_a_part() -> None:
    payment = PaymentFactory()
    send(payment)

    assert send(payment, "payment.refunded", amount="1.00") == Outcome.PARKED

    assert (status(payment.order), Refund.objects.count()) == (Status.PAID, 0)


def test_process_webhook_parks_another_meaning_under_a_known_id() -> None:
    payment, other = PaymentFactory(), PaymentFactory()
    send(payment, event_id="e1")

    told = [send(other, event_id="e1") for _ in range(2)]

    assert told == [Outcome.PARKED] * 2
    assert WebhookEvent.objects.get(outcome=Outcome.PARKED).cause == "replay_changed"
    assert (status(payment.order), status(other.order)) == (Status.PAID, Status.UNPAID)


def test_process_webhook_pays_after_the_deadline_while_the_order_holds_its_unit() -> None:
    payment = PaymentFactory(order__overdue=True)

    assert send(payment) == Outcome.APPLIED

    assert status(payment.order) == Status.PAID


def test_process_webhook_writes_nothing_for_a_forged_message() -> None:
    payment = PaymentFactory()
    body, _ = sandbox.message(payment, "payment.succeeded")

    with pytest.raises(SignatureInvalid):
        services.process_webhook("sandbox", body, {"x-signature": sandbox.sign(body + b" ")})

    assert (WebhookEvent.objects.count(), status(payment.order)) == (0, Status.UNPAID)


def test_process_webhook_loses_nothing_in_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    payment = PaymentFactory()

    def crash(*args: Any, **kwargs: Any) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(orders, "pay_order", crash)
        with pytest.raises(KeyboardInterrupt):
            send(payment, event_id="e1")
    payment.refresh_from_db()
    assert (WebhookEvent.objects.count(), payment.status) == (0, Payment.State.CREATED)

    assert send(payment, event_id="e1") == Outcome.APPLIED


# --- races ----------------------------------------------------------------------------------------


def together(number: int, work: Callable[[int], Any]) -> list[Any]:
    """Run the same work in threads that start at once; returns what each returned or raised."""
    barrier, results = threading.Barrier(number), [None] * number

    def run(index: int) -> None:
        barrier.wait()
        try:
            results[index] = work(index)
        except Exception as error:  # noqa: BLE001 - the test looks at it.
            results[index] = error  # type: ignore[call-overload]
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_process_webhook_many_copies_at_once_pay_once() -> None:
    payment = PaymentFactory()

    told = together(8, lambda _: send(payment, event_id="e1"))

    assert told == [Outcome.APPLIED] * 8
    assert OrderEvent.objects.filter(kind="paid").count() == 1


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_process_webhook_against_expiry_has_one_winner() -> None:
    for _ in range(10):
        payment = PaymentFactory(order__overdue=True)

        together(2, lambda i, p=payment: orders.expire_orders() if i else send(p))  # type: ignore[misc]

        captures.settle(payment.pk)  # The gate may have been loaded just then.
        order = Order.objects.get(pk=payment.order_id)
        # Whoever came first: the unit is still free, so the money buys it.
        assert (order.status, order.sale.allocated) == (Status.PAID, 1)
        assert Refund.objects.count() == 0


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_start_payment_two_tabs_share_one_payment() -> None:
    order = OrderFactory()

    found = together(6, lambda _: services.start_payment(order.pk, user_id=order.user_id)[0].pk)

    assert len(set(found)) == 1
