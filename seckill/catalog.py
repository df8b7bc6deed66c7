"""The sales as anybody may see them: one query and one call to the gate, however many there are."""

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Count, Max, Q
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from inventory import gate
from inventory.models import FlashSale, SaleState
from inventory.redis_clients import RedisNotConfigured
from orders.models import LIVE, Order, Status
from orders.presentation import money, rfc3339

log = logging.getLogger(__name__)

PLENTY = 100  # from here on the number isn't told
CLOSED_SHOWN = timedelta(days=1)
MOST = 200


class Offer(NamedTuple):
    """A sale with the stock that a new buyer would meet now; a moment old, and no promise."""

    sale: FlashSale
    stock: int
    state: SaleState

    @property
    def stock_band(self) -> str:
        return "plenty" if self.stock >= PLENTY else str(self.stock)

    @property
    def taken_percent(self) -> int:
        """How much is gone, rounded so that 0 means untouched and 100 means sold out."""
        if not self.sale.quantity or not self.stock:
            return 100
        share = 100 * (self.sale.quantity - self.stock) / self.sale.quantity
        return min(99, max(0, -int(-share // 1)))

    @property
    def discount_percent(self) -> int | None:
        """How much less than the list price, in whole percent; None if that is nothing."""
        before = self.sale.list_price_cents
        return (100 * (before - self.sale.price_cents) // before or None) if before else None


class Session(NamedTuple):
    """Sales that are shown together under one tab."""

    key: str
    label: "Promise | str"
    offers: list[Offer]


class SoldOut(NamedTuple):
    """What is known about a sale that has sold out: when its last order came, what is unpaid."""

    unpaid: int
    last_at: datetime | None


def sessions(offers: Iterable[Offer], now: datetime) -> list[Session]:
    """The tabs of the list, those without sales left out."""
    tomorrow = timezone.localtime(now).date() + timedelta(days=1)

    def key(offer: Offer) -> str:
        if offer.state is SaleState.CLOSED:
            return "ended"
        if offer.sale.starts_at <= now:
            return "now"
        return "next" if timezone.localtime(offer.sale.starts_at).date() < tomorrow else "tomorrow"

    groups: dict[str, list[Offer]] = {name: [] for name in _LABELS}
    for offer in offers:
        groups[key(offer)].append(offer)
    return [Session(name, _LABELS[name], group) for name, group in groups.items() if group]


_LABELS = {
    "now": _("Now"),
    "next": _("Next"),
    "tomorrow": _("Tomorrow and later"),
    "ended": _("Just ended"),
}


def sold_out(sale_id: int) -> SoldOut:
    live = Order.objects.filter(sale_id=sale_id, status__in=LIVE)
    unpaid = Count("pk", filter=Q(status=Status.UNPAID))
    return SoldOut(**live.aggregate(unpaid=unpaid, last_at=Max("created_at")))


def offers() -> list[Offer]:
    """What is on sale, will be, or has ended within a day; the next to start come first."""
    now = timezone.now()
    sales = FlashSale.objects.select_related("product").filter(ends_at__gt=now - CLOSED_SHOWN)
    return _offers(list(sales.order_by("starts_at", "id")[:MOST]), now)


def offer(sale_id: int) -> Offer | None:
    sales = list(FlashSale.objects.select_related("product").filter(Q(pk=sale_id)))
    return next(iter(_offers(sales, timezone.now())), None)


def _offers(sales: Sequence[FlashSale], now: datetime) -> list[Offer]:
    levels = _gate_stocks(sale.pk for sale in sales)
    return [_offer(sale, levels.get(sale.pk), now) for sale in sales]


def _offer(sale: FlashSale, level: int | None, now: datetime) -> Offer:
    stock = max(0, sale.available if level is None else level)
    state = sale.state(now)
    if state in (SaleState.OPEN, SaleState.SOLD_OUT):
        state = SaleState.OPEN if stock else SaleState.SOLD_OUT
    return Offer(sale, stock, state)


def _gate_stocks(sale_ids: Iterable[int]) -> dict[int, int | None]:
    """Empty if the gate can't be read: then the database's number has to do."""
    wanted = list(sale_ids)
    try:
        return gate.stocks(wanted) if wanted else {}
    except (gate.GateError, RedisNotConfigured) as error:
        log.warning("showing the database's stock, the gate is away: %s", error)
        return {}


def sale_json(shown: Offer) -> dict[str, Any]:
    sale = shown.sale
    return {
        "id": sale.pk,
        "product": sale.product.name,
        "description": sale.product.description,
        "state": shown.state.value,
        "stock_band": shown.stock_band,
        "starts_at": rfc3339(sale.starts_at),
        "ends_at": rfc3339(sale.ends_at),
        "price": money(sale.price_cents),
        "list_price": None if sale.list_price_cents is None else money(sale.list_price_cents),
        "currency": sale.currency,
        "per_buyer": sale.per_buyer,
    }
