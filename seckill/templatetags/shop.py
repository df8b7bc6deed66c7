"""How money and times look on pages."""

from datetime import UTC, datetime

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext

from orders import presentation

register = template.Library()

SYMBOLS = {"CNY": "¥"}


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
def countdown(until: datetime, text: str, over: str) -> SafeString:
    """The time left until `until`, filled in by scripts; without them nothing is shown."""
    return format_html(
        '<span class="countdown" role="timer" hidden data-until="{}" data-over="{}">'
        '{} <span class="digits"></span></span>',
        presentation.rfc3339(until),
        over,
        text,
    )


@register.filter
def stock_text(band: str) -> str:
    return gettext("plenty left") if band == "plenty" else gettext("%s left") % band
