"""What a buyer may do: get a token, try to buy, ask for the outcome."""

import logging
import time
from datetime import datetime, timedelta
from functools import cache
from typing import NamedTuple
from uuid import UUID

import uuid_utils.compat
from django.conf import settings
from django.core.signals import setting_changed
from django.db.models.functions import Now
from django.dispatch import receiver
from django.utils import timezone

from inventory import gate
from inventory.gate import Admission
from inventory.models import FlashSale
from inventory.signals import announce
from inventory.soldout import Turn, marks
from orders import priming
from orders.models import Order, Rejection, Status
from seckill import tokens
from seckill.publisher import publisher
from seckill.throttle import Throttle

log = logging.getLogger(__name__)

# Seconds between two looks whether somebody else's answer from the gate is there.
LOOK_AGAIN = 0.005

_NOT_SELLING = frozenset({Admission.PAUSED, Admission.CLOSED, Admission.NOT_OPEN})

# So long after the end of the sale a token still lets its buyer ask for the outcome.
TOKEN_AFTERLIFE = timedelta(days=1)


class SaleClosed(Exception):
    """Raised when a token is asked for after the end of the sale."""


class IssuedToken(NamedTuple):
    token: str
    purchase_id: UUID
    valid_from: datetime
    expires_at: datetime


class Purchase(NamedTuple):
    """What became of a try. `purchase_id` is the live purchase if the buyer has one already."""

    purchase_id: UUID
    admission: Admission
    retry_after: float | None = None
    starts_at: datetime | None = None
    result: str = ""  # of a purchase that has ENDED


class Outcome(NamedTuple):
    """`status`: queued, succeeded or failed. `code`: the cause of a failure."""

    status: str
    code: str = ""
    order: Order | None = None


@cache
def throttle() -> Throttle:
    """This process's limiter, by user id, for the form and for the lane.

    Threads and the event loop share it: a race may let a try too many through to the gate, whose
    script holds the rate over all processes.
    """
    return Throttle(*settings.PURCHASE_RATE)


@receiver(setting_changed)
def _forget_throttle(*, setting: str, **_: object) -> None:
    if setting == "PURCHASE_RATE":
        throttle.cache_clear()


def issue_token(*, sale_id: int, user_id: int) -> IssuedToken:
    """A token, also before the start. Raises FlashSale.DoesNotExist, SaleClosed."""
    sale = FlashSale.objects.annotate(now=Now()).get(pk=sale_id)
    if sale.now >= sale.ends_at:
        raise SaleClosed
    purchase_id = uuid_utils.compat.uuid7()
    expires_at = sale.ends_at + TOKEN_AFTERLIFE
    token = tokens.issue(
        sale_id=sale_id,
        user_id=user_id,
        purchase_id=purchase_id,
        valid_from=sale.starts_at.timestamp(),
        expires_at=expires_at.timestamp(),
    )
    return IssuedToken(token, purchase_id, sale.starts_at, expires_at)


def purchase(*, sale_id: int, user_id: int, quantity: int = 1) -> Purchase:
    """Try to buy: a batch of one, by the same steps as the lane.

    Raises FlashSale.DoesNotExist for an unknown sale, gate.GateError if Redis is away.
    """
    purchase_id = uuid_utils.compat.uuid7()
    if marks.refuses(sale_id):
        return Purchase(purchase_id, Admission.SOLD_OUT)
    if wait := throttle().hit(user_id):
        return Purchase(purchase_id, Admission.THROTTLED, wait)
    if _is_refused_by_now(sale_id):
        return Purchase(purchase_id, Admission.SOLD_OUT)
    entry = gate.Entry(user_id, str(purchase_id), quantity)
    reservation = _reserve(sale_id, entry)
    if reservation.verdicts[0].admission is Admission.NOT_PRIMED:
        priming.prime(sale_id)
        reservation = _reserve(sale_id, entry)
    verdict = reservation.verdicts[0]
    if verdict.admission is Admission.RESERVED:
        publisher.put(sale_id, [[entry.purchase_id, user_id, quantity]])
    return _purchase(purchase_id, verdict, reservation)


def _is_refused_by_now(sale_id: int) -> bool:
    """When a mark has run out one asks the gate; the others wait here for what it hears."""
    while (turn := marks.turn(sale_id)) is Turn.WAIT:
        time.sleep(LOOK_AGAIN)
    return turn is Turn.REFUSED


def _reserve(sale_id: int, entry: gate.Entry) -> gate.Reservation:
    asked_at = time.monotonic()
    reservation = gate.reserve(sale_id, [entry])
    note(sale_id, reservation, asked_at=asked_at)
    announce(sale_id, level=reservation.level)
    return reservation


def note(sale_id: int, reservation: gate.Reservation, *, asked_at: float) -> None:
    """Keep what the gate said about stock as this process's mark.

    A sale that is paused, closed or not open yet gets no mark that refuses: "sold out" isn't why.
    """
    level = reservation.level
    if level.stock is not None:
        open_now = not any(v.admission in _NOT_SELLING for v in reservation.verdicts)
        sold_out = level.sold_out and open_now
        marks.observe(sale_id, epoch=level.epoch, sold_out=sold_out, seen_at=asked_at)


def _purchase(purchase_id: UUID, verdict: gate.Verdict, reservation: gate.Reservation) -> Purchase:
    admission, detail = verdict
    if admission in (Admission.QUEUED, Admission.ORDERED):
        return Purchase(UUID(detail), admission)
    if admission is Admission.THROTTLED:
        return Purchase(purchase_id, admission, int(detail) / 1000)
    if admission is Admission.NOT_OPEN:
        starts_at = datetime.fromtimestamp(
            reservation.starts_at_ms / 1000, tz=timezone.get_default_timezone()
        )
        wait = max(0, reservation.starts_at_ms - reservation.now_ms) / 1000
        return Purchase(purchase_id, admission, wait, starts_at)
    return Purchase(purchase_id, admission, result=detail)


def outcome(*, sale_id: int, purchase_id: UUID, user_id: int) -> Outcome | None:
    """What became of a purchase; None if it is unknown, or another buyer's.

    The database is the truth; the gate is asked only about what has no row yet.
    """
    if order := Order.objects.filter(pk=purchase_id, sale_id=sale_id, user_id=user_id).first():
        return outcome_of(order)
    try:
        trace = gate.traces(sale_id, [str(purchase_id)])[0]
    except gate.GateError as error:
        log.warning("outcome of %s: the gate is away: %s", purchase_id, error)
        raise
    return Outcome("queued") if trace.state == "queued" and trace.user_id == user_id else None


def outcome_of(order: Order) -> Outcome:
    if order.status == Status.REJECTED:
        return Outcome("failed", order.code or Rejection.FAILED)
    return Outcome("succeeded", "", order)
