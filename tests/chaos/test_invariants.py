"""The checker finds each invariant broken where it is, and nothing where all is well."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.cases import (
    ANNE,
    BEN,
    CLEO,
    EXPIRED,
    PAID,
    PAYMENT,
    REJECTED,
    SALE,
    START,
    STRANGER,
    all_well,
    asked,
    bought,
    call,
    change,
    fault,
    look,
    refused,
)
from tests.chaos.evidence import Books, Closing, Evidence
from tests.chaos.history import Entry
from tests.chaos.invariants import INVARIANTS, broken

Spoil = Callable[[Evidence], object]


def test_nothing_is_found_where_all_is_well() -> None:
    assert broken(all_well()) == {}


def seen(**level: Any) -> Spoil:
    """One sample of many."""

    def spoil(evidence: Evidence) -> None:
        evidence.samples = [*evidence.samples, look(START + 9, **level)]

    return spoil


def at_rest(**columns: Any) -> Spoil:
    def spoil(evidence: Evidence) -> None:
        evidence.rest.levels = {SALE: replace(evidence.rest.levels[SALE], **columns)}

    return spoil


def in_the_gate(**changes: Any) -> Spoil:
    def spoil(evidence: Evidence) -> None:
        evidence.rest.books = {SALE: replace(evidence.rest.books[SALE], **changes)}

    return spoil


def row(purchase: str, **columns: Any) -> Spoil:
    return lambda evidence: change(evidence, purchase, **columns)


def said(*entries: Entry) -> Spoil:
    return lambda evidence: [evidence.history.add(entry) for entry in entries]


def went_through(purchase: str, *steps: str) -> Spoil:
    def spoil(evidence: Evidence) -> None:
        evidence.rest.events = {**evidence.rest.events, purchase: steps}

    return spoil


def paid_with(*payments: Any) -> Spoil:
    return lambda evidence: setattr(evidence.rest, "payments", payments)


def told_at_the_end(purchase: str, status: str, code: str = "") -> Spoil:
    def spoil(evidence: Evidence) -> None:
        evidence.answers = {**evidence.answers, purchase: (status, code)}

    return spoil


def without(purchase: str) -> Spoil:
    """The row is gone; nobody told an outcome yet."""

    def spoil(evidence: Evidence) -> None:
        evidence.rest.orders = {k: v for k, v in evidence.rest.orders.items() if k != purchase}
        evidence.rest.events = {k: v for k, v in evidence.rest.events.items() if k != purchase}
        evidence.answers = {k: v for k, v in evidence.answers.items() if k != purchase}

    return spoil


def frame(purchase: str, user: int, kind: str, code: str = "") -> Entry:
    return call("frame", purchase, user, told={"type": kind, "code": code})


def closing(units: int, accepted: int) -> Spoil:
    return lambda evidence: setattr(evidence, "closings", [Closing(SALE, units, accepted)])


def phantom(evidence: Evidence) -> None:
    orders = {**evidence.rest.orders, "x": replace(evidence.rest.orders[REJECTED], id="x")}
    evidence.rest.orders = orders
    evidence.rest.events = {**evidence.rest.events, "x": ("rejected",)}


def sold_out_meanwhile(evidence: Evidence) -> None:
    evidence.samples = [look(START), look(START + 3, epoch=6, stock=0), look(START + 6, epoch=7)]
    evidence.history.add(refused("sold_out", START + 4.5))


def late_by_a_fault(evidence: Evidence) -> None:
    change(evidence, EXPIRED, closed_at=START + 10)
    evidence.history.add(fault("beat", "kill", START + 6, START + 9))


GONE = replace(PAYMENT, id="q", order=EXPIRED, use="refund", refunded=True, refunds=(990,))
# What is spoilt, and all invariants that are broken by it.
CASES: dict[str, tuple[Spoil, set[int]]] = {
    "a unit that no order has": (seen(allocated=2), {1}),
    "more allocated than there is": (seen(allocated=4, sold=4), {1, 2}),
    "units that came from nowhere": (at_rest(quantity=4), {1, 3}),
    "oversold for a moment": (seen(unpaid=3, sold=1), {1, 2}),
    "a gate below zero": (seen(stock=-1), {3}),
    "a gate that is too low at rest": (in_the_gate(stock=1), {3}),
    "a gate that is too high at rest": (in_the_gate(stock=3), {3}),
    "a gate that is not loaded": (in_the_gate(stock=None), {3}),
    "a journal that isn't empty": (in_the_gate(journal=[PAID]), {3}),
    "a claim without a journal": (in_the_gate(claims=[PAID]), {3}),
    "units that can't be bought": (closing(3, 2), {4}),
    "units the gate doesn't know of": (row(EXPIRED, released=False), {4}),
    "a buyer held up by an order that ended": (
        in_the_gate(buyers={ANNE: f"{PAID}|o", BEN: f"{EXPIRED}|o"}),
        {4},
    ),
    "no rest": (lambda evidence: setattr(evidence, "unrest", ["1 refund"]), {4}),
    "two live orders of a buyer": (seen(most_orders=2), {5}),
    "more units than a buyer may have": (seen(most_units=2), {5}),
    "a purchase that nobody answers": (told_at_the_end(PAID, "queued"), {6}),
    "two answers": (said(asked(PAID, ANNE, "failed", "sold_out")), {6, 7}),
    "another cause": (said(asked(REJECTED, CLEO, "failed", "duplicate")), {6, 7}),
    "a frame that says otherwise": (
        said(frame(PAID, ANNE, "purchase.failed", "sold_out")),
        {6, 7},
    ),
    "success without an order": (
        said(bought("x", BEN), asked("x", BEN, "succeeded")),
        {6, 7, 16},
    ),
    "an order that nobody was promised": (phantom, {7}),
    "money that the shop doesn't know of": (paid_with(replace(PAYMENT, status=2)), {8}),
    "money that the gateway doesn't know of": (paid_with(replace(PAYMENT, captured=False)), {8}),
    "a paid order without money": (paid_with(), {8}),
    "another amount": (paid_with(replace(PAYMENT, amount=1)), {8}),
    "money that neither pays nor goes back": (
        paid_with(PAYMENT, replace(GONE, refunds=(), refunded=False)),
        {8},
    ),
    "a refund twice": (paid_with(PAYMENT, replace(GONE, refunds=(990, 990))), {8}),
    "a refund that the gateway doesn't know of": (
        paid_with(PAYMENT, replace(GONE, refunded=False)),
        {8},
    ),
    "two payments for one order": (paid_with(PAYMENT, replace(PAYMENT, id="q")), {8}),
    "an end after an end": (went_through(EXPIRED, "created", "canceled", "expired"), {9}),
    "units back twice": (went_through(EXPIRED, "created", "expired", "expired"), {9, 15}),
    "a state without its step": (went_through(PAID, "created"), {9}),
    "an ended order that kept its units": (row(EXPIRED, restocked=False), {9}),
    "an order that expired early": (row(EXPIRED, closed_at=START + 6.9), {10}),
    "… for a moment": (seen(early=1), {10}),
    "an order that expired late": (row(EXPIRED, closed_at=START + 10), {10}),
    "an order that never expires": (row(PAID, status=0), {8, 9, 10, 16}),
    "a mark that outlives its time": (said(refused("sold_out", START + 5)), {11}),
    "polling that doesn't tell": (
        lambda evidence: setattr(evidence, "answers", {}),
        {6, 12},
    ),
    "a frame for somebody else": (said(frame(PAID, BEN, "order.paid")), {12}),
    "another price": (row(PAID, unit_price=1), {13}),
    "another amount to pay": (row(PAID, amount=1), {8, 13}),
    "an order of another buyer": (row(PAID, user=STRANGER), {12, 13}),
    "another quantity": (row(REJECTED, quantity=2, amount=1980), {13}),
    "an order that a stranger may look at": (
        said(call("look", PAID, STRANGER, told={"status": "unpaid"})),
        {13},
    ),
    "admitted before the start": (said(bought(PAID, ANNE, START - 1)), {14}),
    "admitted after the end": (
        lambda evidence: setattr(evidence.sales[0], "ends_at", START + 0.5),
        {14},
    ),
    "refused as not open": (said(refused("not_open", START + 1, status=403)), {14}),
    "refused as closed": (said(refused("closed", START + 1, status=410)), {14}),
    "a step twice": (went_through(REJECTED, "rejected", "rejected"), {9, 15}),
    "a webhook that counts twice": (paid_with(replace(PAYMENT, captures_told=2)), {15}),
    "another's purchase": (said(bought("x", BEN, told={"purchase_id": PAID})), {15}),
    "a promise that got lost": (without(EXPIRED), {6, 16}),
    "paid, and then not": (
        said(call("look", EXPIRED, BEN, told={"status": "paid"})),
        {16},
    ),
    "no answer": (said(call("look", PAID, ANNE, kind="unknown", status=0)), {17}),
    "an answer that is no answer": (
        said(call("pay", PAID, ANNE, kind="unknown", status=500)),
        {17},
    ),
    "an answer that comes late": (said(refused("closed", START + 2_000, seconds=4)), {17}),
    "a long poll that is too long": (
        said(call("ask", PAID, ANNE, wait=5, seconds=9, told={"status": "queued"})),
        {17},
    ),
    "what the audit says": (lambda evidence: setattr(evidence.rest, "audit", ["x"]), {0}),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_broken_is_found(case: str) -> None:
    spoil, numbers = CASES[case]
    evidence = all_well()

    spoil(evidence)

    assert broken(evidence).keys() == numbers


def test_every_invariant_has_a_case() -> None:
    assert set().union(*(numbers for _, numbers in CASES.values())) == {0, *INVARIANTS}
    assert set(INVARIANTS) == set(range(1, 18))


EXCUSED: dict[str, Spoil] = {
    "late, while something was broken": late_by_a_fault,
    "no answer of a process that was killed": said(
        fault("web1", "kill", START, START + 2),
        call("look", PAID, ANNE, kind="unknown", status=0),
    ),
    "a late answer of a process that stood still": said(
        fault("web1", "pause", START, START + 5),
        call("look", PAID, ANNE, seconds=4.5, told={"status": "paid"}),
    ),
    "sold out, and it was, a moment ago": sold_out_meanwhile,
    "a late answer of a busy machine": said(
        Entry("lag", "ok", START + 2, START + 3, told={"late": 0.9}),
        call("look", PAID, ANNE, seconds=4.5, told={"status": "paid"}),
    ),
    "two wanted, and one left": said(refused("sold_out", START + 5, quantity=2)),
    "503": said(refused("unavailable", START + 1, kind="unknown", status=503)),
    "closed, by the database": said(
        call("buy", REJECTED, CLEO, kind="fail", status=410, told={"code": "closed"})
    ),
}


@pytest.mark.parametrize("case", EXCUSED)
def test_what_may_happen_is_no_finding(case: str) -> None:
    evidence = all_well()

    EXCUSED[case](evidence)

    assert broken(evidence) == {}


def test_an_answer_that_is_no_answer_has_no_excuse() -> None:
    evidence = all_well()
    evidence.history.add(fault("web1", "kill", START, START + 2))
    evidence.history.add(call("look", PAID, ANNE, kind="unknown", status=500))

    assert broken(evidence).keys() == {17}


def test_no_answer_of_another_process_is_no_excuse() -> None:
    evidence = all_well()
    evidence.history.add(fault("web2", "kill", START, START + 2))
    evidence.history.add(call("look", PAID, ANNE, kind="unknown", status=0))

    assert broken(evidence).keys() == {17}


def test_books_of_a_buyer_without_a_second_try_hold_nobody_up() -> None:
    evidence = all_well()
    buyers = {ANNE: f"{PAID}|o", BEN: f"{EXPIRED}|x"}
    evidence.rest.books = {SALE: Books(2, (), (), buyers)}

    assert broken(evidence) == {}
