"""The invariants of docs/design.md, each as a function that yields what breaks it.

They know the product's tables, keys and answers, and none of its code.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain, pairwise

from tests.chaos.answers import (
    answer_in_time,
    durable,
    polls_and_frames,
    told_once,
    told_truly,
    window,
)
from tests.chaos.evidence import Evidence, Order
from tests.chaos.history import Entry
from tests.chaos.sampler import Gate, Level

UNPAID, PAID, CANCELED, EXPIRED, REFUNDED, REJECTED = range(6)
LIVE = (UNPAID, PAID)
NAMES = ("unpaid", "paid", "canceled", "expired", "refunded", "rejected")
GRACE = 20.0  # seconds after a fault in which a deadline may still be missed because of it
LATE = 0.6  # seconds that a busy machine adds to a sweep

# What may follow what; notes and the steps of a refund may stand anywhere.
STEPS = {
    "": {"created", "rejected"},
    "created": {"paid", "canceled", "expired"},
    "canceled": {"paid"},
    "expired": {"paid"},
    "paid": {"refunded"},
    "refunded": set[str](),
    "rejected": set[str](),
}
ENDS = {"created": UNPAID, **{name: number for number, name in enumerate(NAMES)}}

Check = Callable[[Evidence], Iterator[str]]


def _levels(evidence: Evidence) -> Iterator[tuple[int, Level]]:
    yield from ((sample.sale, sample.level) for sample in evidence.samples)
    yield from evidence.rest.levels.items()


def conservation(evidence: Evidence) -> Iterator[str]:
    for sale, level in _levels(evidence):
        if level.allocated != level.unpaid + level.sold or level.allocated > level.quantity:
            yield f"sale {sale}: {level}"
    for sale, level in evidence.rest.levels.items():
        wanted = evidence.units + evidence.rest.adjusted.get(sale, 0)
        if level.quantity != wanted:
            yield f"sale {sale} has {level.quantity} units, should have {wanted}"


def never_oversold(evidence: Evidence) -> Iterator[str]:
    for sale, level in _levels(evidence):
        if level.unpaid + level.sold > level.quantity:
            yield f"sale {sale}: {level}"


def gate_in_step(evidence: Evidence) -> Iterator[str]:
    for sample in evidence.samples:
        if sample.gate and sample.gate.stock is not None and sample.gate.stock < 0:
            yield f"sale {sample.sale}: gate stock {sample.gate.stock}"
    for sale, books in evidence.rest.books.items():
        level = evidence.rest.levels[sale]
        if books.journal or books.claims:
            yield f"sale {sale}: the journal holds {[*books.journal, *books.claims]}"
        if books.stock != level.quantity - level.allocated:
            yield f"sale {sale}: gate {books.stock}, database {level.quantity - level.allocated}"


def no_unit_lost(evidence: Evidence) -> Iterator[str]:
    yield from evidence.unrest
    for closing in evidence.closings:
        if closing.accepted < closing.units:
            yield f"not all of the last units could be bought: {closing}"
    for order in evidence.rest.orders.values():
        if order.restocked and not order.released:
            yield f"the gate never got the units of {order.id} back"
    yield from _held_up(evidence)


def _held_up(evidence: Evidence) -> Iterator[str]:
    for sale, books in evidence.rest.books.items():
        for user, entry in books.buyers.items():
            purchase, _, state = entry.partition("|")
            order = evidence.rest.orders.get(purchase)
            if state != "x" and (order is None or order.status not in LIVE):
                yield f"sale {sale}: buyer {user} is held up by {entry}"


def one_order_per_buyer(evidence: Evidence) -> Iterator[str]:
    for sale, level in _levels(evidence):
        if level.most_orders > 1 or level.most_units > level.per_buyer:
            yield f"sale {sale}: {level}"


def units_back_once(evidence: Evidence) -> Iterator[str]:
    for order in evidence.rest.orders.values():
        steps = [s for s in evidence.rest.events.get(order.id, ()) if s in STEPS]
        if any(after not in STEPS[before] for before, after in pairwise(["", *steps])):
            yield f"order {order.id} went through {steps}"
        elif not steps or ENDS[steps[-1]] != order.status:
            yield f"order {order.id} is {NAMES[order.status]} after {steps}"
        if order.restocked != (order.status in (CANCELED, EXPIRED)):
            yield f"order {order.id} is {NAMES[order.status]}, restocked: {order.restocked}"


def money(evidence: Evidence) -> Iterator[str]:
    paying: Counter[str] = Counter()
    for payment in evidence.rest.payments:
        order = evidence.rest.orders[payment.order]
        taken = payment.status == 1
        if payment.captured != taken:
            yield f"the gateway took the money: {payment.captured}; the shop says {payment}"
        if payment.use == "order":
            paying[order.id] += 1
            if order.status != PAID or payment.amount != order.amount or payment.refunds:
                yield f"{payment} pays {order}"
        elif taken and payment.refunds != (payment.amount,):
            yield f"money of no use, and not given back once: {payment}"
        if payment.refunded != bool(payment.refunds):
            yield f"the gateway gave it back: {payment.refunded}; the shop says {payment}"
    for order in evidence.rest.orders.values():
        if paying[order.id] != (order.status == PAID):
            yield f"{order} is paid by {paying[order.id]} payments"


def expiry_in_time(evidence: Evidence) -> Iterator[str]:
    for sample in evidence.samples:
        if sample.level.early:
            yield f"sale {sample.sale}: {sample.level.early} orders expired early"
    longest = 2 * evidence.sweep_interval + LATE
    for order in evidence.rest.orders.values():
        late = order.closed_at - order.pay_before
        if order.status == UNPAID:
            yield f"{order} is still unpaid"
        if order.status == EXPIRED and late < 0:
            yield f"{order} expired {-late:.3f} s early"
        if order.status == EXPIRED and late > longest and not _excused(evidence, order):
            yield f"{order} expired {late:.1f} s late"


def _excused(evidence: Evidence, order: Order) -> bool:
    """Something was broken when it should have expired, or shortly before."""
    window = order.pay_before - GRACE, order.pay_before + 2 * evidence.sweep_interval
    return any(fault.overlaps(*window) for fault in evidence.faults)


def marks_run_out(evidence: Evidence) -> Iterator[str]:
    """A refusal although the gate had units all the time, for longer than a mark may last.

    The epoch changes whenever stock reaches 0 or leaves 0: the same one before and after means that
    there was stock all the time between.
    """
    looks: dict[int, list[Gate]] = {}
    for sample in evidence.samples:
        if sample.gate:
            looks.setdefault(sample.sale, []).append(sample.gate)
    for entry in evidence.history.of("buy"):
        if entry.code != "sold_out" or entry.quantity > 1:
            continue  # Who wants two may be refused though there is one.
        if entry.purchase in evidence.rest.orders:
            continue  # It was rejected by the database, which is for good.
        if _had_units(looks.get(entry.sale, []), entry, evidence.sold_out_ttl):
            yield f"refused as sold out, and it was not: {entry}"


def _had_units(looks: list[Gate], entry: Entry, ttl: float) -> bool:
    """`looks`: one after the other."""
    before = bisect_right(looks, entry.began - ttl, key=lambda gate: gate.ended) - 1
    after = bisect_left(looks, entry.ended, key=lambda gate: gate.began)
    if before < 0 or after == len(looks):
        return False
    first, last = looks[before], looks[after]
    return first.epoch == last.epoch and bool(first.stock) and bool(last.stock)


def price_and_buyer(evidence: Evidence) -> Iterator[str]:
    asked = {entry.purchase: (entry.user, entry.quantity) for entry in evidence.history.of("buy")}
    for order in evidence.rest.orders.values():
        if order.unit_price != evidence.price or order.amount != order.quantity * evidence.price:
            yield f"{order} doesn't cost what the sale says"
        if asked.get(order.id, (order.user, order.quantity)) != (order.user, order.quantity):
            yield f"{order} was asked for by another, or as another number: {asked[order.id]}"
    for entry in evidence.history.of("look"):
        known = evidence.rest.orders.get(entry.purchase)
        if entry.kind == "ok" and (known is None or known.user != entry.user):
            yield f"buyer {entry.user} saw {known}"


def repeats_change_nothing(evidence: Evidence) -> Iterator[str]:
    for order, steps in evidence.rest.events.items():
        twice = [step for step, times in Counter(steps).items() if times > 1 and step in STEPS]
        if twice:
            yield f"order {order} has twice: {twice}"
    for payment in evidence.rest.payments:
        if payment.captures_told > 1:
            yield f"{payment} was applied {payment.captures_told} times"
    owner = {entry.purchase: entry.user for entry in evidence.history.of("buy")}
    for entry in evidence.history.of("buy"):
        purchase = entry.told.get("purchase_id", entry.purchase)
        if owner.get(purchase) != entry.user:
            yield f"buyer {entry.user} was told of purchase {purchase}, which is another's"


INVARIANTS: dict[int, tuple[str, Check]] = {
    1: ("conservation", conservation),
    2: ("never oversold", never_oversold),
    3: ("the gate is in step", gate_in_step),
    4: ("no unit lost", no_unit_lost),
    5: ("one live order per buyer", one_order_per_buyer),
    6: ("one answer that never changes", told_once),
    7: ("answers are true", told_truly),
    8: ("money", money),
    9: ("units come back once", units_back_once),
    10: ("expiry in time", expiry_in_time),
    11: ("marks run out", marks_run_out),
    12: ("polls and frames", polls_and_frames),
    13: ("price and buyer", price_and_buyer),
    14: ("one clock for the window", window),
    15: ("repeats change nothing", repeats_change_nothing),
    16: ("promises survive", durable),
    17: ("an answer in time", answer_in_time),
}


def audit(evidence: Evidence) -> Iterator[str]:
    """The product's own word, besides: it must have nothing to complain of."""
    yield from evidence.rest.audit


def broken(evidence: Evidence) -> dict[int, list[str]]:
    """What breaks each invariant, by its number; 0 is the product's own audit."""
    found = {number: list(check(evidence)) for number, (_, check) in INVARIANTS.items()}
    return {
        number: texts
        for number, texts in chain(found.items(), [(0, list(audit(evidence)))])
        if texts
    }
