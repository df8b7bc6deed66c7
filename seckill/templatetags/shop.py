"""How money, times, states and pictures look on pages."""

import json
from datetime import UTC, datetime
from typing import Any

from django import template
from django.templatetags.static import static
from django.urls import reverse
from django.utils.formats import number_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext, ngettext

from orders import presentation
from orders.models import Order, Status
from seckill import pictures
from seckill.faces import FACES, Face

register = template.Library()

SYMBOLS = {"CNY": "¥"}
# What an order's state looks like: the badge's tone and icon.
_BADGES = {
    Status.UNPAID: ("warn", "clock"),
    Status.PAID: ("good", "check"),
    Status.CANCELED: ("", "cross"),
    Status.EXPIRED: ("", "end"),
    Status.REFUNDED: ("", "back"),
    Status.REJECTED: ("hot", "empty"),
}


@register.simple_tag
def price(cents: int, currency: str) -> str:
    """`¥9.90`, or `9.90 EUR` for a currency without a symbol here."""
    symbol = SYMBOLS.get(currency)
    amount = presentation.money(cents)
    return f"{symbol}{amount}" if symbol else f"{amount} {currency}"


@register.filter
def moment(at: datetime) -> SafeString:
    """An absolute time in UTC; where scripts run, the reader's own zone replaces it."""
    shown = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    return format_html('<time datetime="{}">{} UTC</time>', presentation.rfc3339(at), shown)


@register.filter
def iso(at: datetime) -> str:
    return presentation.rfc3339(at)


@register.simple_tag
def countdown(until: datetime, text: str, over: str, kind: str = "") -> SafeString:
    """The time left until `until`, filled in by scripts; without them nothing is shown.

    `kind` is a class; `deadline` warns as the end comes near.
    """
    return format_html(
        '<span class="countdown {}" role="timer" hidden data-until="{}" data-over="{}">'
        '{} <span class="digits"></span></span>',
        kind,
        presentation.rfc3339(until),
        over,
        text,
    )


@register.filter
def stock_text(band: str) -> str:
    return gettext("plenty left") if band == "plenty" else gettext("%s left") % band


@register.simple_tag
def icon(name: str) -> SafeString:
    """A symbol beside a text that says the same."""
    return format_html(
        '<svg class="icon" aria-hidden="true"><use href="{}#{}"/></svg>',
        static("seckill/icons.svg"),
        name,
    )


@register.simple_tag
def picture_url(name: str) -> str:
    """The drawing for a product without a photograph."""
    return reverse("picture", args=[pictures.seed(name)])


@register.simple_tag
def order_badge(order: Order) -> SafeString:
    tone, name = _BADGES[Status(order.status)]
    text = capfirst(order.get_status_display())
    return format_html('<span class="badge {}">{} {}</span>', tone, icon(name), text)


@register.simple_tag
def faces() -> dict[str, Face]:
    return FACES


@register.simple_tag
def face(name: str) -> Face:
    return FACES[name]


@register.filter
def units_unpaid(number: int) -> str:
    """`3 orders`, for what may come back."""
    said = ngettext("%(number)s order", "%(number)s orders", number)
    return said % {"number": number_format(number)}


@register.filter
def fill(text: Any, value: Any) -> str:
    """A face's text with its `{}` replaced."""
    return str(text).replace("{}", str(value))


@register.simple_tag
def texts(**named: str) -> SafeString:
    """Words for scripts, as the value of a data attribute."""
    return format_html("{}", json.dumps(named, ensure_ascii=False))
