"""How far an order is, as the three steps that its page shows."""

from typing import NamedTuple

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from orders.models import Status


class Step(NamedTuple):
    """`tone`: done, now, bad, or empty for what is still to come."""

    label: "Promise | str"
    icon: str
    tone: str = ""
    current: bool = False


_ORDERED = Step(_("Order placed"), "check", "done")
_STEPS: dict[int, tuple[Step, Step]] = {
    Status.UNPAID: (Step(_("To pay"), "clock", "now", True), Step(_("Done"), "bag")),
    Status.PAID: (Step(_("Payment made"), "check", "done"), Step(_("Done"), "bag", "done", True)),
    Status.CANCELED: (Step(_("Not paid"), "cross"), Step(_("Canceled"), "cross", "bad", True)),
    Status.EXPIRED: (Step(_("Not paid in time"), "clock"), Step(_("Expired"), "end", "bad", True)),
    Status.REFUNDED: (
        Step(_("Payment made"), "check", "done"),
        Step(_("Refunded"), "back", "bad", True),
    ),
}


def steps(status: int) -> list[Step]:
    return [_ORDERED, *_STEPS[status]]
