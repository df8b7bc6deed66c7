"""How units come back to the gate: settle.lua, release.lua and adjust.lua."""

from collections.abc import Callable

import pytest
import redis

from inventory import gate
from inventory.gate import Admission, Held, Settlement, Verdict
from tests.inventory.gates import RESERVED, SALE, buy, journal, new_id, open_sale, prime, stock

# --- settle ---------------------------------------------------------------------------------------


def test_settle_an_order_keeps_its_unit_and_its_buyer() -> None:
    prime(5)
    purchase, _ = buy(1)

    for _ in range(2):
        level = gate.settle(SALE, [Settlement(purchase, 1)])

    assert (level.stock, journal()) == (4, {})
    assert buy(1)[1] == Verdict(Admission.ORDERED, purchase)
    assert gate.traces(SALE, [purchase]) == [gate.Trace("ordered")]


@pytest.mark.parametrize("units_back", [0, 1, 2])
def test_settle_a_rejection_twice_returns_its_units_once(units_back: int) -> None:
    prime(5)
    purchase, _ = buy(1, 2)
    rejection = Settlement(purchase, 1, "sold_out", units_back)

    levels = [gate.settle(SALE, [rejection]).stock for _ in range(2)]

    assert levels == [3 + units_back] * 2
    assert journal() == {}
    assert gate.traces(SALE, [purchase]) == [gate.Trace("rejected", "sold_out")]
    assert buy(1, purchase=purchase)[1] == Verdict(Admission.ENDED, "x|sold_out")
    assert buy(1)[1] == RESERVED


def test_settle_a_duplicate_adopts_the_live_order() -> None:
    prime(5)
    purchase, _ = buy(1)
    live = new_id()

    gate.settle(SALE, [Settlement(purchase, 1, "duplicate", 1, live)])

    assert stock() == 5
    assert buy(1)[1] == Verdict(Admission.ORDERED, live)


def test_settle_knows_the_buyer_whose_account_is_gone() -> None:
    prime(5)
    purchase, _ = buy(1)

    gate.settle(SALE, [Settlement(purchase, 0, "failed", 1)])

    assert stock() == 5
    assert buy(1)[1] == RESERVED


def test_settle_a_second_try_bars_the_buyer() -> None:
    prime(5, rebuy=False)
    purchase, _ = buy(1)

    gate.settle(SALE, [Settlement(purchase, 1, "rebuy_not_allowed", 1)])

    assert stock() == 5
    assert buy(1)[1] == Verdict(Admission.REBUY)


def test_settle_leaves_another_purchase_of_the_buyer_alone() -> None:
    prime(5)
    mine, _ = buy(1)

    gate.settle(SALE, [Settlement(new_id(), 1, "failed", 1)])

    assert (stock(), journal()) == (4, {mine: (1, 1)})


def test_settle_says_when_stock_came_back() -> None:
    prime(1)
    purchase, _ = buy(1)
    epoch = gate.snapshot(SALE).epoch

    level = gate.settle(SALE, [Settlement(purchase, 1, "failed", 1)])
    again = gate.settle(SALE, [Settlement(purchase, 1, "failed", 1)])

    assert level == gate.Level(epoch + 1, 1, True)
    assert again == gate.Level(epoch + 1, 1, False)


# --- release --------------------------------------------------------------------------------------


def test_release_gives_units_back_once_and_frees_the_buyer() -> None:
    prime(5)
    purchase, _ = buy(1, 2)
    gate.settle(SALE, [Settlement(purchase, 1)])

    levels = [gate.release(SALE, [Held(purchase, 1, 2)]).stock for _ in range(2)]

    assert levels == [5, 5]
    assert buy(1)[1] == RESERVED


def test_release_of_two_in_one_call_counts_both() -> None:
    prime(2)
    first, second = buy(1)[0], buy(2)[0]

    level = gate.release(SALE, [Held(first, 1, 1), Held(second, 2, 1), Held(first, 1, 1)])

    assert (level.stock, level.crossed) == (2, True)


def test_release_bars_the_buyer_of_a_sale_without_second_try() -> None:
    prime(5, rebuy=False)
    purchase, _ = buy(1)

    levels = [gate.release(SALE, [Held(purchase, 1, 1)]).stock for _ in range(2)]

    assert levels == [5, 5]
    assert buy(1)[1] == Verdict(Admission.REBUY)


def test_release_before_its_reserve_leaves_a_tombstone() -> None:
    prime(5)
    purchase = new_id()

    gate.release(SALE, [Held(purchase, 1, 1)])

    assert buy(1, purchase=purchase)[1] == Verdict(Admission.ENDED, "o")
    assert (stock(), journal()) == (5, {})


def test_release_takes_the_purchase_out_of_the_journal() -> None:
    prime(5)
    purchase, _ = buy(1)

    gate.release(SALE, [Held(purchase, 1, 1)])

    assert (stock(), journal()) == (5, {})
    assert gate.due(SALE, retry_after=0) == []


@pytest.mark.parametrize("call", ["settle", "release", "adjust", "reconcile", "configure"])
def test_calls_do_nothing_to_a_gate_that_is_not_primed(
    redis_client: redis.Redis, call: str
) -> None:
    calls: dict[str, Callable[[], object]] = {
        "settle": lambda: gate.settle(SALE, [Settlement("p", 1, "failed", 1)]),
        "release": lambda: gate.release(SALE, [Held("p", 1, 1)]),
        "adjust": lambda: gate.adjust(SALE, "a", 5)[0],
        "reconcile": lambda: gate.reconcile(SALE, version="1", stock=5)[0],
        "configure": lambda: gate.configure(SALE, open_sale()),
    }

    answer = calls[call]()

    assert answer in (gate.Level(0, None, False), False)
    assert list(redis_client.scan_iter("*sale:*")) == []


# --- adjust ---------------------------------------------------------------------------------------


def test_adjust_twice_counts_once() -> None:
    prime(5)

    answers = [gate.adjust(SALE, "a", 3) for _ in range(2)]

    assert [(level.stock, moved) for level, moved in answers] == [(8, 3), (8, 3)]


def test_adjust_takes_out_at_most_what_is_there() -> None:
    prime(2)

    answers = [gate.adjust(SALE, "a", -5) for _ in range(2)]

    assert [(level.stock, moved) for level, moved in answers] == [(0, -2), (0, -2)]
    assert [level.crossed for level, _ in answers] == [True, False]


def test_adjust_says_when_stock_comes_back() -> None:
    prime(0)
    epoch = gate.snapshot(SALE).epoch

    assert gate.adjust(SALE, "a", 1)[0] == gate.Level(epoch + 1, 1, True)


def test_adjust_that_finds_nothing_to_take_changes_nothing() -> None:
    prime(0)
    before = gate.snapshot(SALE).epoch

    answers = [gate.adjust(SALE, "a", -1) for _ in range(2)]

    assert answers == [(gate.Level(before, 0, False), 0)] * 2


def test_prime_knows_the_adjustments_of_its_snapshot() -> None:
    prime(5, adjustments=["a"])

    level, moved = gate.adjust(SALE, "a", 3)

    assert (level.stock, moved) == (5, 0)
