"""What happens when Redis answers, and nobody hears it."""

from collections.abc import Iterator

import pytest
import redis
from pytest_django import Settings

from inventory import gate, redis_clients
from inventory.gate import Admission, Entry, Held, Settlement, Verdict
from tests.inventory.gates import RESERVED, SALE, buy, journal, new_id, prime, stock
from tests.support.proxy import FaultProxy


@pytest.fixture
def proxy(settings: Settings, redis_url: str) -> Iterator[FaultProxy]:
    """Stands between this process's clients and Redis."""
    with FaultProxy(int(redis_url.rpartition(":")[2].partition("/")[0])) as between:
        settings.REDIS_URL = between.url(redis_url)
        redis_clients.forget()
        yield between
        redis_clients.forget()


def lose_the_reply_of_a_reserve(proxy: FaultProxy) -> None:
    gate.reserve(SALE, [Entry(99, new_id(), 0)])  # the script is loaded, a connection is open
    proxy.set("cut_reply_once", when=lambda piece: piece.count(b"\r\n") > 3)


def test_reserve_whose_reply_is_lost_takes_one_unit_and_answers_reserved(proxy: FaultProxy) -> None:
    prime(5)
    lose_the_reply_of_a_reserve(proxy)
    purchase = new_id()

    verdicts = gate.reserve(SALE, [Entry(1, purchase)]).verdicts

    assert proxy.fired.is_set()
    assert verdicts == [RESERVED]
    assert (stock(), journal()) == (4, {purchase: (1, 1)})


def test_reserve_without_the_repeat_rule_would_lose_the_answer(
    proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the test above: the script without its rule for repeats."""
    read = gate._source

    def source(name: str) -> str:
        return read(name).replace("and by == call", "and false")

    monkeypatch.setattr(gate, "_source", source)
    assert source("reserve") != read("reserve")
    prime(5)
    lose_the_reply_of_a_reserve(proxy)
    purchase = new_id()

    verdicts = gate.reserve(SALE, [Entry(1, purchase)]).verdicts

    assert proxy.fired.is_set()
    assert verdicts == [Verdict(Admission.QUEUED, purchase)]


@pytest.mark.parametrize("script", ["settle", "release", "adjust"])
def test_units_come_back_once_though_the_reply_is_lost(proxy: FaultProxy, script: str) -> None:
    prime(5)
    purchase, _ = buy(1)
    calls = {
        "settle": lambda: gate.settle(SALE, [Settlement(purchase, 1, "failed", 1)]),
        "release": lambda: gate.release(SALE, [Held(purchase, 1, 1)]),
        "adjust": lambda: gate.adjust(SALE, "a", 1)[0],
    }
    redis_clients.sync_client().script_load(gate._source(script))
    proxy.set("cut_reply_once", when=lambda piece: piece.startswith((b"*3", b"*4")))

    level = calls[script]()

    assert proxy.fired.is_set()
    assert level.stock == 5


async def test_reserve_async_whose_reply_is_lost_takes_one_unit(proxy: FaultProxy) -> None:
    prime(5)
    await gate.reserve_async(SALE, [Entry(99, new_id(), 0)])
    proxy.set("cut_reply_once", when=lambda piece: piece.count(b"\r\n") > 3)

    verdicts = (await gate.reserve_async(SALE, [Entry(1, new_id())])).verdicts

    await redis_clients.async_client().aclose()
    assert proxy.fired.is_set()
    assert verdicts == [RESERVED]
    assert stock() == 4


def test_scripts_run_again_after_redis_forgot_them(redis_client: redis.Redis) -> None:
    prime(5)
    buy(1)
    redis_client.script_flush()

    assert buy(2)[1] == RESERVED


def test_gate_error_when_redis_refuses_writes(redis_client: redis.Redis) -> None:
    prime(5)
    redis_client.config_set("min-replicas-to-write", 1)
    try:
        with pytest.raises(gate.GateError):
            buy(1)
    finally:
        redis_client.config_set("min-replicas-to-write", 0)

    assert (stock(), journal()) == (5, {})
