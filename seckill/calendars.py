"""The start of a sale as an entry for the visitor's own calendar (RFC 5545)."""

from datetime import UTC, datetime, timedelta

from django.utils.translation import gettext as _

from inventory.models import FlashSale

ALARM = 10  # minutes before the start, when it is time to sign in
_ESCAPED = str.maketrans({"\\": "\\\\", ";": "\\;", ",": "\\,", "\n": "\\n", "\r": None})


def reminder(sale: FlashSale, *, url: str, now: datetime) -> bytes:
    """A file with one event and one alarm."""
    title = _("%(product)s: flash sale") % {"product": sale.product.name}
    lines = [
        *("BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//seckill//EN", "BEGIN:VEVENT"),
        f"UID:sale-{sale.pk}-{sale.starts_at:%Y%m%d%H%M%S}@seckill",
        f"DTSTAMP:{_utc(now)}",
        f"DTSTART:{_utc(sale.starts_at)}",
        f"DTEND:{_utc(min(sale.ends_at, sale.starts_at + timedelta(minutes=15)))}",
        f"SUMMARY:{title.translate(_ESCAPED)}",
        f"URL:{url}",
        *("BEGIN:VALARM", f"TRIGGER:-PT{ALARM}M", "ACTION:DISPLAY"),
        f"DESCRIPTION:{title.translate(_ESCAPED)}",
        *("END:VALARM", "END:VEVENT", "END:VCALENDAR", ""),
    ]
    return "\r\n".join(_folded(line) for line in lines).encode()


def _utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def _folded(line: str) -> str:
    """No line is longer than 75 bytes; the rest follows after a space."""
    parts, size = [""], 0
    for character in line:
        size += len(character.encode())
        if size > 73:
            parts.append("")
            size = len(character.encode())
        parts[-1] += character
    return "\r\n ".join(parts)
