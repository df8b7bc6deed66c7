"""A small run in which all was well, for the tests of the checker to spoil."""

from dataclasses import replace
from typing import Any

from tests.chaos.evidence import Books, Closing, Evidence, Order, Payment, Rest
from tests.chaos.history import Entry, History
from tests.chaos.sampler import Gate, Level, Sample
from tests.chaos.site import Sale

SALE, PRICE, UNITS = 7, 990, 3
START = 1_000.0
PAID, EXPIRED, REJECTED = "paid-order", "expired-order", "rejected-purchase"  # three purchases
ANNE, BEN, CLEO, STRANGER = 1, 2, 3, 99
LEVEL = Level(1_020.0, UNITS, 1, 1, unpaid=0, sold=1, early=0, most_orders=1, most_units=1)
ORDER = Order(
    *(PAID, SALE, ANNE, 1, PRICE, PRICE, 1, "", START + 1, START + 7, 0.0),
    restocked=False,
    released=False,
)
PAYMENT = Payment("p", PAID, 1, "order", PRICE, True, False, (), 1)


def call(op: str, purchase: str, user: int, at: float = START + 1, **more: Any) -> Entry:
    seconds = more.pop("seconds", 0.1)
    usual: dict[str, Any] = {"kind": "ok", "status": 200, "sale": SALE, "target": "web1"}
    return Entry(op=op, began=at, ended=at + seconds, user=user, purchase=purchase, **usual | more)


def bought(purchase: str, user: int, at: float = START + 1, **more: Any) -> Entry:
    told = {"purchase_id": purchase, "status": "queued"}
    return call("buy", purchase, user, at, **({"status": 202, "told": told} | more))


def refused(code: str, at: float, user: int = STRANGER, **more: Any) -> Entry:
    told = {"kind": "fail", "status": 409, "told": {"code": code}}
    return call("buy", "refused-purchase", user, at, **(told | more))


def asked(purchase: str, user: int, status: str, code: str = "") -> Entry:
    return call("ask", purchase, user, START + 2, told={"status": status, "code": code})


def fault(target: str, name: str, began: float, ended: float) -> Entry:
    told = {"component": target, "fault": name}
    return Entry("fault", "ok", began, ended, target=target, told=told)


def look(at: float, *, stock: int | None = 2, epoch: int = 5, **level: Any) -> Sample:
    return Sample(SALE, replace(LEVEL, at=at, **level), Gate(at, at + 0.01, stock, epoch))


def all_well() -> Evidence:
    """Anne has paid, Ben's order expired, Cleo was one too many."""
    expired = replace(
        ORDER, id=EXPIRED, user=BEN, status=3, closed_at=START + 8, restocked=True, released=True
    )
    rejected = replace(ORDER, id=REJECTED, user=CLEO, status=5, code="sold_out")
    history = History()
    for purchase, user in ((PAID, ANNE), (EXPIRED, BEN), (REJECTED, CLEO)):
        history.add(bought(purchase, user))
    history.add(asked(PAID, ANNE, "succeeded"))
    history.add(asked(REJECTED, CLEO, "failed", "sold_out"))
    history.add(call("look", PAID, ANNE, START + 4, told={"status": "paid"}))
    told = {"type": "purchase.succeeded", "code": "ordered"}
    history.add(call("frame", PAID, ANNE, START + 2, told=told))
    rest = Rest(
        levels={SALE: LEVEL},
        books={SALE: Books(UNITS - 1, (), (), {ANNE: f"{PAID}|o"})},
        adjusted={},
        orders={order.id: order for order in (ORDER, expired, rejected)},
        events={
            PAID: ("created", "paid"),
            EXPIRED: ("created", "expired"),
            REJECTED: ("rejected",),
        },
        payments=(PAYMENT,),
    )
    return Evidence(
        history,
        [look(START + 0.2 * n) for n in range(50)],
        rest,
        [Sale(SALE, START, START + 1_000)],
        [Closing(SALE, 2, 2)],
        {
            PAID: ("succeeded", ""),
            EXPIRED: ("succeeded", ""),
            REJECTED: ("failed", "sold_out"),
        },
        units=UNITS,
        price=PRICE,
        sold_out_ttl=1.0,
        sweep_interval=1.0,
    )


def change(evidence: Evidence, purchase: str, **columns: Any) -> None:
    """Another row of an order at the end."""
    orders = dict(evidence.rest.orders)
    orders[purchase] = replace(orders[purchase], **columns)
    evidence.rest.orders = orders
