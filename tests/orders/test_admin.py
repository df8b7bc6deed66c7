"""Staff cancel and refund orders: with a reason, if they may, and each once."""

from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from orders import admin_actions
from orders.models import Order, OrderEvent, Payment, Refund, Status, WebhookEvent
from orders.payments import captures
from orders.payments.providers import Event
from tests.factories import OrderFactory, PaymentFactory, UserFactory

pytestmark = pytest.mark.django_db

LIST = "/admin/orders/order/"
CANCEL, REFUND, RESTOCK = "cancel_orders", "refund_orders", "refund_and_restock_orders"


@pytest.fixture
def staff(client: Client) -> Client:
    client.force_login(UserFactory(staff=True, username="anna"))
    return client


def act(client: Client, action: str, *orders: Order, **fields: str) -> Any:
    chosen = {"action": action, "_selected_action": [str(order.pk) for order in orders]}
    return client.post(LIST, chosen | fields, follow=True)


def test_action_asks_for_a_reason_first_and_says_what_it_will_do(staff: Client) -> None:
    order = OrderFactory()

    page = act(staff, CANCEL, order).text

    assert "Unpaid orders are canceled" in page
    assert str(order.pk) in page
    assert 'name="reason"' in page
    assert Order.objects.get().status == Status.UNPAID


@pytest.mark.parametrize("reason", ["", "   ", "x" * 201])
def test_action_without_a_proper_reason_changes_nothing(staff: Client, reason: str) -> None:
    order = OrderFactory()

    act(staff, CANCEL, order, reason=reason)

    assert Order.objects.get().status == Status.UNPAID


def test_cancel_writes_down_who_and_why(staff: Client) -> None:
    order, paid = OrderFactory(), OrderFactory(paid=True)

    page = act(staff, CANCEL, order, paid, reason="wrong price").text

    assert Order.objects.get(pk=order.pk).status == Status.CANCELED
    assert Order.objects.get(pk=paid.pk).status == Status.PAID
    event = OrderEvent.objects.get(kind="canceled")
    assert (event.actor, event.reason) == ("anna", "wrong price")
    assert "1 changed." in page
    assert "1 was in another state." in page


@pytest.mark.parametrize(("action", "restocked"), [(REFUND, False), (RESTOCK, True)])
def test_refund_sends_the_money_back_with_or_without_the_units(
    staff: Client, action: str, restocked: bool
) -> None:
    order = OrderFactory(paid=True)

    act(staff, action, order, reason="broken")
    act(staff, action, order, reason="again")

    order.refresh_from_db()
    assert (order.status, order.restocked) == (Status.REFUNDED, restocked)
    assert Refund.objects.get().cause == Refund.Cause.STAFF
    assert OrderEvent.objects.get(kind="refunded").reason == "broken"


@pytest.mark.parametrize(
    ("permission", "allowed"),
    [(None, set()), ("cancel_order", {CANCEL}), ("refund_order", {REFUND, RESTOCK})],
)
def test_actions_are_for_those_who_may(
    client: Client, permission: str | None, allowed: set[str]
) -> None:
    user = UserFactory(is_staff=True)
    names = ["view_order", *([permission] if permission else [])]
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    client.force_login(user)
    unpaid, paid = OrderFactory(), OrderFactory(paid=True)

    page = client.get(LIST).text
    assert {name for name in (CANCEL, REFUND, RESTOCK) if f'value="{name}"' in page} == allowed
    for action in (CANCEL, REFUND, RESTOCK):
        act(client, action, unpaid, paid, reason="x")

    changed = {Order.objects.get(pk=unpaid.pk).status, Order.objects.get(pk=paid.pk).status}
    expected = {
        None: {Status.UNPAID, Status.PAID},
        "cancel_order": {Status.CANCELED, Status.PAID},
        "refund_order": {Status.UNPAID, Status.REFUNDED},
    }
    assert changed == expected[permission]


def test_actions_take_a_bounded_number(staff: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_actions, "MOST", 1)

    page = act(staff, CANCEL, OrderFactory(), OrderFactory(), reason="x").text

    assert "At most 1 at once." in page
    assert set(Order.objects.values_list("status", flat=True)) == {Status.UNPAID}


@pytest.mark.parametrize("page", ["refund/", "payment/", "webhookevent/", "order/"])
def test_money_is_read_only_in_the_admin(staff: Client, page: str) -> None:
    assert staff.get(f"/admin/orders/{page}").status_code == 200
    assert staff.get(f"/admin/orders/{page}add/").status_code == 403


def test_order_shows_its_payments_and_what_happened(staff: Client) -> None:
    order = OrderFactory(paid=True)

    page = staff.get(f"{LIST}{order.pk}/change/").text

    assert str(order.payments.get().pk) in page
    assert "pays its order" in page


# --- messages that fit nothing --------------------------------------------------------------------


def parked(**changes: Any) -> WebhookEvent:
    payment = PaymentFactory()
    about = (str(payment.pk), str(payment.order_id))
    event = Event("e1", "payment.succeeded", *about, 1, "CNY", "ref")._replace(**changes)
    assert captures.record("sandbox", event, "{}") == "parked"
    return WebhookEvent.objects.get()


def act_on(client: Client, action: str, event: WebhookEvent) -> Any:
    chosen = {"action": action, "_selected_action": [event.pk], "reason": "called them"}
    return client.post("/admin/orders/webhookevent/", chosen, follow=True)


def test_parked_message_is_handled_once_with_a_note(staff: Client) -> None:
    event = parked()

    act_on(staff, "mark_handled", event)
    act_on(staff, "refund_money", event)

    event.refresh_from_db()
    assert (event.outcome, event.note) == ("handled", "anna: called them")
    note = OrderEvent.objects.get(kind="note")
    assert (note.actor, note.reason) == ("anna", "called them")
    assert Refund.objects.count() == 0


@pytest.mark.parametrize("changes", [{}, {"currency": "USD", "amount_cents": 990}])
def test_parked_money_goes_back_as_it_was_taken(staff: Client, changes: dict[str, Any]) -> None:
    event = parked(**changes)

    for _ in range(2):
        act_on(staff, "refund_money", event)

    refund = Refund.objects.get()
    taken = (event.amount_cents, event.currency)
    assert (refund.amount_cents, refund.currency) == taken
    payment = Payment.objects.get()
    assert (payment.use, payment.reference) == (Payment.Use.REFUND, "ref")
    assert Order.objects.get().status == Status.UNPAID


@pytest.mark.parametrize(
    "changes",
    [
        {"payment_id": "nobody"},
        {"order_id": "nobody"},
        {"kind": "payment.refunded"},
        {"amount_cents": None},
        {"currency": ""},
    ],
)
def test_parked_message_that_is_not_about_money_sends_none_back(
    staff: Client, changes: dict[str, Any]
) -> None:
    event = parked(**changes)

    act_on(staff, "refund_money", event)

    event.refresh_from_db()
    assert (event.outcome, Refund.objects.count()) == ("parked", 0)


def test_parked_messages_are_for_those_who_may(client: Client) -> None:
    user = UserFactory(is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="view_webhookevent"))
    client.force_login(user)
    event = parked()

    act_on(client, "mark_handled", event)

    event.refresh_from_db()
    assert event.outcome == "parked"
