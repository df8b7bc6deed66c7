"""Whom the gate admits: reserve.lua by its contract, on a real Redis."""

from typing import Any

import pytest
import redis
from pytest_django import Settings

from inventory import gate, keys
from inventory.gate import Admission, Entry, Settlement, Verdict
from tests.inventory.gates import (
    HOUR_MS,
    NOW_MS,
    RESERVED,
    SALE,
    buy,
    journal,
    new_id,
    prime,
    stock,
)
from tests.support import environment

# --- reserve --------------------------------------------------------------------------------------


def test_reserve_takes_units_and_writes_the_journal() -> None:
    prime(5)
    first, second = new_id(), new_id()

    reservation = gate.reserve(SALE, [Entry(1, first), Entry(2, second, 2)])

    assert reservation.verdicts == [RESERVED, RESERVED]
    assert (reservation.level.stock, reservation.level.crossed) == (2, False)
    assert journal() == {first: (1, 1), second: (2, 2)}
    assert gate.traces(SALE, [first]) == [gate.Trace("queued", "", 1)]


def test_reserve_answers_queued_to_another_call_for_the_same_buyer() -> None:
    prime(5)
    first, _ = buy(1)

    assert buy(1, purchase=first)[1] == Verdict(Admission.QUEUED, first)
    assert buy(1)[1] == Verdict(Admission.QUEUED, first)
    assert stock() == 4


def test_reserve_takes_one_unit_for_two_entries_of_a_buyer_in_a_batch() -> None:
    prime(5)
    first, second = new_id(), new_id()

    verdicts = gate.reserve(SALE, [Entry(1, first), Entry(1, second)], limited=False).verdicts

    assert verdicts == [RESERVED, Verdict(Admission.QUEUED, first)]
    assert (stock(), journal()) == (4, {first: (1, 1)})


def test_reserve_takes_one_unit_for_the_same_entry_twice_in_a_batch() -> None:
    prime(5)
    entry = Entry(1, new_id())

    verdicts = gate.reserve(SALE, [entry, entry], limited=False).verdicts

    assert verdicts == [RESERVED, RESERVED]
    assert stock() == 4


def test_reserve_repeated_with_its_call_id_gives_the_same_answers() -> None:
    prime(2)
    args = gate._reserve_args([Entry(1, new_id()), Entry(2, new_id()), Entry(3, new_id())], True)

    first = gate._reservation(gate._run("reserve", SALE, args)).verdicts
    again = gate._reservation(gate._run("reserve", SALE, args)).verdicts

    assert first == again == [RESERVED, RESERVED, Verdict(Admission.SOLD_OUT)]
    assert stock() == 0


def test_reserve_refuses_in_order_of_arrival_when_units_end() -> None:
    prime(3)
    entries = [Entry(1, new_id(), 2), Entry(2, new_id(), 2), Entry(3, new_id(), 1)]

    reservation = gate.reserve(SALE, entries)

    admissions = [verdict.admission for verdict in reservation.verdicts]
    assert admissions == [Admission.RESERVED, Admission.SOLD_OUT, Admission.RESERVED]
    assert reservation.level.crossed
    assert reservation.level.sold_out


@pytest.mark.parametrize(
    ("changes", "admission"),
    [
        ({"paused": True}, Admission.PAUSED),
        ({"starts_ms": NOW_MS + HOUR_MS, "ends_ms": NOW_MS + 2 * HOUR_MS}, Admission.NOT_OPEN),
        ({"ends_ms": NOW_MS - 1000}, Admission.CLOSED),
    ],
)
def test_reserve_refuses_a_sale_that_is_not_open(
    changes: dict[str, Any], admission: Admission
) -> None:
    prime(5, **changes)

    assert buy(1)[1] == Verdict(admission)
    assert (stock(), journal()) == (5, {})


def test_reserve_judges_the_window_by_the_clock_of_redis(redis_client: redis.Redis) -> None:
    seconds, micros = redis_client.time()
    now = seconds * 1000 + micros // 1000
    prime(5, starts_ms=now + 150, ends_ms=now + HOUR_MS)

    before = gate.reserve(SALE, [Entry(1, new_id())], limited=False)
    while (later := gate.reserve(SALE, [Entry(1, new_id())], limited=False)).now_ms < now + 150:
        assert later.verdicts == [Verdict(Admission.NOT_OPEN)]

    assert before.verdicts == [Verdict(Admission.NOT_OPEN)]
    assert before.starts_at_ms == now + 150
    assert later.verdicts == [RESERVED]


@pytest.mark.parametrize("quantity", [0, -1, 3, 1_000_000])
def test_reserve_refuses_a_quantity_out_of_bounds(quantity: int) -> None:
    prime(5)

    assert buy(1, quantity)[1] == Verdict(Admission.QUANTITY)
    assert stock() == 5


def test_reserve_of_an_unknown_sale_makes_no_key(redis_client: redis.Redis) -> None:
    reservation = gate.reserve(SALE, [Entry(1, new_id())])

    assert reservation.verdicts == [Verdict(Admission.NOT_PRIMED)]
    assert reservation.level == gate.Level(0, None, False)
    assert list(redis_client.scan_iter("*sale:*")) == []


@pytest.mark.parametrize("lost", ["info", "stock"])
def test_reserve_admits_nobody_when_a_part_of_the_gate_is_lost(
    redis_client: redis.Redis, lost: str
) -> None:
    prime(5)
    redis_client.delete(keys.of_sale(SALE, lost))

    assert buy(1)[1] == Verdict(Admission.NOT_PRIMED)
    assert gate.stocks([SALE]) == {SALE: None}
    assert journal() == {}


def test_every_key_has_the_prefix_and_one_hash_tag(redis_client: redis.Redis) -> None:
    prime(1, adjustments=["a"])
    buy(1)
    gate.reserve(SALE, [Entry(2, new_id())])
    gate.due(SALE, retry_after=0)
    gate.settle(SALE, [Settlement("other", 3)])

    names = set(redis_client.scan_iter())

    assert names == set(keys.sale(SALE))
    assert all(name.startswith(environment.redis_prefix()) for name in names)
    assert {name[name.index("{") : name.index("}") + 1] for name in names} == {"{7}"}


# --- the buyers' rate -----------------------------------------------------------------------------


class Gcra:
    """The limiter in Python: a theoretical arrival time that moves on by one interval a try."""

    def __init__(self, limit: int, window_ms: float) -> None:
        self.window, self.interval, self.tat = window_ms, window_ms / limit, 0.0

    def admits(self, now: float) -> bool:
        after = max(self.tat, now) + self.interval
        if after - now > self.window:
            return False
        self.tat = float(round(after))
        return True


def test_keys_of_a_sale_never_run_out(redis_client: redis.Redis) -> None:
    """A key that ended during the sale would take units along. The rate's ends by itself."""
    prime(3, adjustments=["a"])
    first, second = new_id(), new_id()
    gate.reserve(SALE, [Entry(1, first), Entry(2, second)])
    gate.settle(SALE, [Settlement(first, 1)])
    assert len(gate.due(SALE, retry_after=0)) == 1

    ends = {key: redis_client.pttl(key) for key in keys.sale(SALE)}

    assert ends.pop(keys.of_sale(SALE, "rate")) > 0
    assert set(ends.values()) == {-1}


@pytest.mark.parametrize("rate", [(1, 0.05), (3, 0.06), (5, 0.2)])
def test_reserve_limits_a_buyer_like_the_model(settings: Settings, rate: tuple[int, float]) -> None:
    settings.PURCHASE_RATE = rate
    prime(0)
    model = Gcra(rate[0], rate[1] * 1000)

    seen, expected = [], []
    for _ in range(150):
        reservation = gate.reserve(SALE, [Entry(1, new_id())])
        seen.append(reservation.verdicts[0].admission is not Admission.THROTTLED)
        expected.append(model.admits(reservation.now_ms))

    assert seen == expected
    assert set(seen) == {True, False}


def test_reserve_tells_how_long_to_wait(settings: Settings) -> None:
    settings.PURCHASE_RATE = (2, 10.0)
    prime(0)

    verdicts = [gate.reserve(SALE, [Entry(1, new_id())]).verdicts[0] for _ in range(3)]

    assert [v.admission for v in verdicts[:2]] == [Admission.SOLD_OUT] * 2
    assert verdicts[2].admission is Admission.THROTTLED
    assert 4000 < int(verdicts[2].detail) <= 5000


def test_reserve_limits_each_buyer_alone_and_forgets_in_time(
    settings: Settings, redis_client: redis.Redis
) -> None:
    settings.PURCHASE_RATE = (1, 10.0)
    prime(0)

    entries = [Entry(1, new_id()), Entry(1, new_id()), Entry(2, new_id())]
    verdicts = gate.reserve(SALE, entries).verdicts

    assert [v.admission for v in verdicts] == [
        Admission.SOLD_OUT,
        Admission.THROTTLED,
        Admission.SOLD_OUT,
    ]
    assert 0 < redis_client.pttl(keys.of_sale(SALE, "rate")) <= 20_000


def test_reserve_never_throttles_a_buyer_with_a_live_purchase(settings: Settings) -> None:
    settings.PURCHASE_RATE = (1, 10.0)
    prime(5)
    purchase = new_id()

    verdicts = [gate.reserve(SALE, [Entry(1, purchase)]).verdicts[0] for _ in range(3)]

    assert verdicts == [RESERVED] + [Verdict(Admission.QUEUED, purchase)] * 2
