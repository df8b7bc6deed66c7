"""What the buy button may look like: every state that a visitor can meet, in one place.

The page carries all of them as templates, so that scripts change the state without a word of
their own. Each has an icon, a label and a note, so that none is told by colour alone.
"""

from typing import NamedTuple

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from inventory.models import SaleState

Text = Promise | str


class Face(NamedTuple):
    """`kind`: submit (buys), off (says why not), busy, or the name of where a link leads.

    `{}` in a label or a note is filled in: with a time, a number or a name.
    """

    icon: str
    label: Text
    note: Text
    kind: str = "off"

    @property
    def is_link(self) -> bool:
        return self.kind in ("login", "purchase", "sales", "reload")


FACES: dict[str, Face] = {
    "not_started": Face(
        "clock", _("Not open yet"), _("The button opens by itself at the start. No need to reload.")
    ),
    "login_required": Face(
        "user",
        _("Sign in to buy"),
        _("Do it before the start; you come back to this page."),
        "login",
    ),
    "captcha": Face(
        "spin",
        _("Preparing…"),
        _("Your device solves a small task; there is nothing to type."),
        "busy",
    ),
    "ready": Face(
        "bolt", _("Buy now"), _("One tap. Tapping twice still buys only once."), "submit"
    ),
    "submitting": Face("spin", _("Sending…"), _("Your request is on its way."), "busy"),
    "queueing": Face(
        "wait", _("You are in the queue"), _("Your place is kept. See how it stands."), "purchase"
    ),
    "bought": Face(
        "check", _("You got it: view the order"), _("Pay before the deadline."), "purchase"
    ),
    "sold_out": Face(
        "empty", _("Sold out"), _("Everything is paid for. We show it here if anything changes.")
    ),
    "maybe_back": Face(
        "back",
        _("Sold out for now"),
        _("There is still a chance: {} not paid yet may come back. Stay here; it opens by itself."),
    ),
    "ended": Face("end", _("The sale is over"), _("See what else is on sale."), "sales"),
    "paused": Face("pause", _("Paused"), _("It goes on soon. Queue places are kept.")),
    "offline": Face(
        "offline", _("You are offline"), _("It goes on as soon as the connection is back.")
    ),
    "wait": Face(
        "spin", _("One moment…"), _("Many are trying. It goes on by itself in {} s."), "busy"
    ),
    "no_more": Face(
        "end",
        _("No second try"),
        _("You had an order in this sale, and it allows one try."),
        "sales",
    ),
    "trouble": Face(
        "info",
        _("Try again"),
        _("No answer from the shop. Trying again is safe: it buys only once."),
        "submit",
    ),
}

_OF_SALE = {
    SaleState.SCHEDULED: "not_started",
    SaleState.OPEN: "ready",
    SaleState.PAUSED: "paused",
    SaleState.SOLD_OUT: "sold_out",
    SaleState.CLOSED: "ended",
}


def face_of(state: SaleState, *, unpaid: int = 0) -> str:
    """The face for somebody of whom nothing is known. `unpaid`: orders that may still come back."""
    return "maybe_back" if state is SaleState.SOLD_OUT and unpaid else _OF_SALE[state]
