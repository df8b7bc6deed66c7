"""Units for an order that lives again, because its money came late: retake.lua."""

from inventory import gate
from inventory.gate import Admission, Held, Settlement, Verdict
from tests.inventory.gates import RESERVED, SALE, buy, new_id, prime, stock


def ended(*, units: int = 1) -> str:
    """An order of buyer 1 that came and went, with its units back at the gate."""
    purchase, _ = buy(1, units)
    gate.settle(SALE, [Settlement(purchase, 1)])
    gate.release(SALE, [Held(purchase, 1, units)])
    return purchase


def test_retake_holds_the_units_again_once() -> None:
    prime(5)
    purchase = ended(units=2)

    answers = [gate.retake(SALE, Held(purchase, 1, 2)) for _ in range(2)]

    assert [(level.stock, held) for level, held in answers] == [(3, True)] * 2
    assert buy(1)[1] == Verdict(Admission.ORDERED, purchase)


def test_retake_of_the_last_unit_tells_that_the_sale_is_sold_out() -> None:
    prime(1)
    purchase = ended()
    before = gate.snapshot(SALE).epoch

    level, held = gate.retake(SALE, Held(purchase, 1, 1))

    assert (level.stock, level.crossed, held) == (0, True, True)
    assert level.epoch == before + 1
    assert buy(2)[1] == Verdict(Admission.SOLD_OUT)


def test_retake_is_refused_when_others_have_the_units() -> None:
    prime(2)
    purchase = ended(units=2)
    buy(2)

    level, held = gate.retake(SALE, Held(purchase, 1, 2))

    assert (level.stock, held) == (1, False)


def test_retake_is_refused_to_a_buyer_who_bought_again() -> None:
    prime(5)
    purchase = ended()
    second, _ = buy(1)

    level, held = gate.retake(SALE, Held(purchase, 1, 1))

    assert (level.stock, held) == (4, False)
    assert buy(1)[1] == Verdict(Admission.QUEUED, second)


def test_retake_before_the_units_came_back_takes_none() -> None:
    """The late release of that first end must not touch what was paid."""
    prime(1)
    purchase, _ = buy(1)
    gate.settle(SALE, [Settlement(purchase, 1)])

    level, held = gate.retake(SALE, Held(purchase, 1, 1))
    gate.release(SALE, [Held(purchase, 1, 1)])

    assert (level.stock, held, stock()) == (0, True, 0)


def test_retake_does_nothing_before_the_gate_is_primed() -> None:
    level, held = gate.retake(SALE, Held(new_id(), 1, 1))

    assert (level.stock, held) == (None, False)
    prime(5)
    assert buy(1)[1] == RESERVED
