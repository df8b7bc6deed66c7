"""Starting a payment. What becomes of it: captures, asking, refunds."""

import uuid

from django.conf import settings
from django.db.models.functions import Now
from django.utils import timezone

from orders.models import Order, Status
from orders.payments import asking, calls, providers
from orders.payments.captures import process_webhook
from orders.payments.models import Payment
from orders.payments.providers import Provider

__all__ = ["OrderNotPayable", "process_webhook", "start_payment"]

State = Payment.State


class OrderNotPayable(Exception):
    """Raised when an order is paid, over or past its deadline."""


def start_payment(order_id: uuid.UUID, *, user_id: int, provider: str = "") -> tuple[Payment, str]:
    """The order's active payment (made if there is none) and where to pay it.

    Without a provider it is the first that we take. The deadline stays as it is. Raises
    Order.DoesNotExist (also for another buyer's order), OrderNotPayable, UnknownProvider, and
    GatewayError if the provider doesn't answer in time; then asking again is safe.
    """
    provider = provider or settings.PAYMENT_PROVIDERS[0]
    taker = providers.get(provider)
    mine = Order.objects.exclude(status=Status.REJECTED).annotate(now=Now())
    order = mine.get(pk=order_id, user_id=user_id)
    if order.status != Status.UNPAID or order.pay_before <= order.now:
        raise OrderNotPayable(order_id)
    _leave_others(order, provider)
    payment, _ = Payment.objects.get_or_create(
        order=order,
        status=State.CREATED,
        defaults={
            "provider": provider,
            "amount_cents": order.amount_cents,
            "currency": order.currency,
        },
    )
    return payment, payment.url or _prepare(payment, taker)


def _leave_others(order: Order, provider: str) -> None:
    """The buyer has chosen another provider than before."""
    others = order.payments.filter(status=State.CREATED).exclude(provider=provider)
    now = timezone.now()
    # Asked about at once, and closed. If it is paid before that, one of the two goes back.
    others.exclude(ask_at=None).update(status=State.FAILED, ended_at=now, ask_at=now)
    others.update(status=State.FAILED, ended_at=now)


def _prepare(payment: Payment, provider: Provider) -> str:
    """Ask the provider where to pay. Two at once ask for the same, and get the same answer."""
    bill = providers.bill(payment)
    page = calls.call(provider, lambda: provider.create(bill))
    Payment.objects.filter(pk=payment.pk, status=State.CREATED, url="").update(
        url=page.url, session=page.session[:255], ask_at=asking.first_question(bill.pay_before)
    )
    return page.url
