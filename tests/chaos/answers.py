"""The invariants about what buyers are told: 6, 7, 12, 14, 16 and 17 of docs/design.md."""

from collections.abc import Iterator

from tests.chaos.evidence import Evidence
from tests.chaos.history import TERMINAL, Entry, accepted, undecided

PAID, REFUNDED, REJECTED = 1, 4, 5
LONGEST = 3.0  # seconds for an answer
SLACK = 0.7  # seconds that client, proxies and a busy machine add
RESTART = 12.0  # seconds after a kill in which a web process may still be starting
# Where a web process is what a fault point kills.
WEB_POINTS = ("after_reserve", "before_publish")


def told_once(evidence: Evidence) -> Iterator[str]:
    """6: each accepted purchase has a terminal answer, always the same."""
    for purchase, promise in accepted(evidence.history).items():
        if evidence.answers.get(purchase, ("", ""))[0] not in TERMINAL:
            yield f"unanswered: {promise}"
    told: dict[str, set[tuple[str, str]]] = {}
    for purchase, answer in _answers(evidence):
        told.setdefault(purchase, set()).add(answer)
    for purchase, answers in told.items():
        if len(answers) > 1:
            yield f"purchase {purchase} was told {sorted(answers)}"


def _answers(evidence: Evidence) -> Iterator[tuple[str, tuple[str, str]]]:
    """Every terminal answer, by poll or frame, and those at the end."""
    for entry in evidence.history.of("ask"):
        if entry.kind == "ok" and entry.told["status"] in TERMINAL:
            yield entry.purchase, (str(entry.told["status"]), entry.code)
    for entry in evidence.history.of("frame"):
        kind = str(entry.told["type"])
        if kind == "purchase.succeeded":
            yield entry.purchase, ("succeeded", "")
        elif kind == "purchase.failed":
            yield entry.purchase, ("failed", entry.code)
    for purchase, answer in evidence.answers.items():
        if answer[0] in TERMINAL:
            yield purchase, answer


def told_truly(evidence: Evidence) -> Iterator[str]:
    """7: `succeeded` is an order of the caller, `failed` will never be one; none else is there."""
    orders = evidence.rest.orders
    for purchase, (status, code) in _answers(evidence):
        order = orders.get(purchase)
        if order is None or (order.status == REJECTED) != (status == "failed"):
            yield f"purchase {purchase} was told {status}, and is {order}"
        elif order.code != code:
            yield f"purchase {purchase} was told {code!r}, and is {order}"
    asked = accepted(evidence.history).keys() | undecided(evidence.history)
    for phantom in orders.keys() - asked:
        yield f"nobody was told that this might become an order: {orders[phantom]}"


def polls_and_frames(evidence: Evidence) -> Iterator[str]:
    """12: polling tells the outcome in the end; a frame reaches its owner and nobody else."""
    orders = evidence.rest.orders
    for purchase in accepted(evidence.history):
        if purchase in orders and purchase not in evidence.answers:
            yield f"polling doesn't tell of {orders[purchase]}"
    for entry in evidence.history.of("frame"):
        order = orders.get(entry.purchase)
        if order is not None and order.user != entry.user:
            yield f"buyer {entry.user} got a frame about {order}"


def window(evidence: Evidence) -> Iterator[str]:
    """14: nobody is admitted before the start or after the end, nobody is refused between."""
    sales = {sale.sale_id: sale for sale in evidence.sales}
    first: dict[str, float] = {}
    for entry in evidence.history.of("buy"):
        began = first.setdefault(entry.purchase, entry.began)
        sale = sales[entry.sale]
        fresh = entry.kind == "ok" and entry.told["purchase_id"] == entry.purchase
        if fresh and (entry.ended < sale.starts_at or began > sale.ends_at):
            yield f"admitted outside of {sale}: {entry}"
        if entry.code == "not_open" and entry.began > sale.starts_at:
            yield f"refused as not open, and it was: {entry}"
        if entry.code == "closed" and entry.ended < sale.ends_at and not _rejected(evidence, entry):
            yield f"refused as closed, and it was not: {entry}"


def _rejected(evidence: Evidence, entry: Entry) -> bool:
    order = evidence.rest.orders.get(entry.purchase)
    return order is not None and order.status == REJECTED


def durable(evidence: Evidence) -> Iterator[str]:
    """16: what was accepted has a row, what was paid stays so."""
    orders = evidence.rest.orders
    for purchase, promise in accepted(evidence.history).items():
        if purchase not in orders:
            yield f"lost: {promise}"
    for entry in evidence.history.of("look"):
        if entry.kind == "ok" and entry.told["status"] == "paid":
            order = orders.get(entry.purchase)
            if order is None or order.status not in (PAID, REFUNDED):
                yield f"told paid, and is {order}: {entry}"


def answer_in_time(evidence: Evidence) -> Iterator[str]:
    """17: every answer within 3 seconds, and 503 is the only one that blames us."""
    down, lags = _downtimes(evidence), list(evidence.history.of("lag"))
    for entry in evidence.history.of("buy", "ask", "pay", "press", "cancel", "look"):
        if entry.status >= 500 and entry.status != 503:
            yield f"not our 503: {entry}"  # Whatever is down, an answer must be one of ours.
        elif _is_down(down, entry):
            continue
        elif entry.status == 0:
            yield f"no answer: {entry}"
        elif entry.seconds > LONGEST + SLACK + entry.wait + 2 * _lag(lags, entry):
            yield f"after {entry.seconds:.1f} s: {entry}"


def _downtimes(evidence: Evidence) -> list[tuple[str, float, float]]:
    """When a web process was killed, stopped or paused, until it has surely started again."""
    found = []
    for fault in evidence.faults:
        by_point = fault.told["fault"] in WEB_POINTS
        if (fault.target.startswith("web") and "→" not in fault.target) or by_point:
            over = fault.ended + (1.0 if fault.told["fault"] == "pause" else RESTART)
            found.append(("" if by_point else fault.target, fault.began, over))
    return found


def _lag(lags: list[Entry], entry: Entry) -> float:
    """How far behind this machine was while we waited for an answer."""
    return sum(lag.told["late"] for lag in lags if lag.overlaps(entry.began, entry.ended))


def _is_down(down: list[tuple[str, float, float]], entry: Entry) -> bool:
    return any(
        entry.target.startswith(target) and entry.overlaps(began, ended)
        for target, began, ended in down
    )
