"""Celery's way into the services.

Parameters are what messages in flight carry: only add some, with a default.
"""

import logging
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from celery import shared_task
from django.conf import settings
from django.db import InterfaceError, OperationalError
from kombu.exceptions import OperationalError as BrokerError

from inventory import keys
from inventory.faults import faultpoint
from inventory.gate import GateError
from inventory.redis_clients import sync_client
from orders import creation, repair, services, sweeps
from orders.models import Order, Status
from orders.payments import asking, captures, refunds, sandbox_notices

log = logging.getLogger(__name__)


@shared_task(
    name="orders.create_orders",
    autoretry_for=(OperationalError, InterfaceError),
    retry_backoff=1,
    retry_backoff_max=8,
    max_retries=4,
)
def create_orders(sale_id: int, entries: Sequence[Sequence[Any]]) -> None:
    """`entries`: [[purchase_id, user_id, quantity], …]. What fails stays in the journal."""
    orders = creation.create_orders(sale_id=sale_id, purchases=creation.parse(entries))
    faultpoint("after_commit")
    services.settle(sale_id, orders)
    faultpoint("after_settle")
    services.tell_results(orders)
    start_timer(orders)


@shared_task(name="orders.expire_orders")
def expire_orders() -> None:
    services.expire_orders()
    if asking.is_due():  # Whose payment was begun waits for its gateway's answer.
        try:
            ask_gateways.delay()
        except BrokerError as error:
            log.warning("the gateways are asked by the sweep: %s", error)


@shared_task(name="orders.sweep_expired")
def sweep_expired() -> None:
    services.expire_orders()
    sweeps.note()


@shared_task(name="orders.sweep_releases")
def sweep_releases() -> None:
    repair.sweep_releases()


@shared_task(name="orders.recover_reservations")
def recover_reservations() -> None:
    for sale_id, purchases in repair.recover_reservations():
        entries = [[str(p.purchase_id), p.user_id, p.quantity] for p in purchases]
        create_orders.delay(sale_id, entries)


@shared_task(name="orders.ask_gateways")
def ask_gateways() -> None:
    if asking.ask_due():
        services.expire_orders()


@shared_task(name="orders.settle_captures")
def settle_captures() -> None:
    captures.settle_due()


@shared_task(name="orders.send_refunds")
def send_refunds() -> None:
    refunds.send_due()


@shared_task(name="orders.send_sandbox_notices")
def send_sandbox_notices() -> None:
    sandbox_notices.send_due()


@shared_task(name="orders.reconcile_sales")
def reconcile_sales() -> None:
    repair.reconcile_sales()


def start_timer(orders: Sequence[Order]) -> None:
    """One message that expires what is due at the deadline of these orders.

    Orders with nearly the same deadline share it, so that waiting messages stay few however many
    orders there are. Losing it costs nothing but the wait for the next sweep.
    """
    deadlines = [order.pay_before for order in orders if order.status == Status.UNPAID]
    if not deadlines or settings.PAYMENT_WINDOW > settings.TIMER_LONGEST:
        return
    step = min(1.0, settings.PAYMENT_WINDOW / 100)
    slot = math.ceil(max(deadlines).timestamp() / step)
    if _first_of_slot(slot):
        eta = datetime.fromtimestamp(slot * step, tz=UTC)
        try:
            expire_orders.apply_async(eta=eta, ignore_result=True)
        except BrokerError as error:
            log.warning("no timer for %s, the sweep has to do: %s", eta, error)


def _first_of_slot(slot: int) -> bool:
    lock = keys.lock(f"timer:{slot}")
    try:
        return bool(sync_client().set(lock, 1, nx=True, ex=int(settings.PAYMENT_WINDOW) + 60))
    except GateError:
        return True
