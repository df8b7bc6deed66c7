"""Loading, configuring and repairing a gate, each script by its contract."""

from typing import Any

import pytest
import redis

from inventory import gate, keys
from inventory.gate import Admission, Held, Settlement, Verdict
from tests.inventory.gates import RESERVED, SALE, buy, journal, open_sale, prime, stock

# --- prime ----------------------------------------------------------------------------------------


def test_prime_loads_only_a_gate_that_is_not_loaded() -> None:
    assert prime(5, buyers={1: "p|o"})
    buy(2)

    assert not prime(9, buyers={3: "q|o"})

    assert stock() == 4
    assert next(iter(gate.buyers(SALE))) == (1, "p", "o")
    assert 3 not in {user for user, _, _ in gate.buyers(SALE)}


def test_prime_leaves_no_staging_keys(redis_client: redis.Redis) -> None:
    prime(5, buyers={1: "p|o"})
    prime(5, buyers={1: "p|o"})

    assert list(redis_client.scan_iter("*staging*")) == []
    assert redis_client.ttl(keys.of_sale(SALE, "buyers")) == -1


def test_prime_restores_live_orders_and_those_who_may_not_try_again() -> None:
    prime(5, rebuy=False, buyers={1: "live|o", 2: "over|x"})

    assert buy(1)[1] == Verdict(Admission.ORDERED, "live")
    assert buy(2)[1] == Verdict(Admission.REBUY)
    assert gate.release(SALE, [Held("over", 2, 1)]).stock == 5


def test_prime_takes_many_buyers() -> None:
    assert prime(5, buyers={user: f"p{user}|o" for user in range(1, 12_001)})

    assert buy(12_000)[1] == Verdict(Admission.ORDERED, "p12000")


def test_prime_does_nothing_if_the_staged_buyers_got_lost(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = gate._run

    def after_a_flush(*args: Any) -> Any:
        redis_client.flushdb()
        return run(*args)

    with monkeypatch.context() as patch:
        patch.setattr(gate, "_run", after_a_flush)
        with pytest.raises(gate.GateError):
            prime(5, buyers={1: "p|o"})

    assert stock() is None


def test_prime_keeps_the_journal_when_only_the_stock_was_lost(redis_client: redis.Redis) -> None:
    prime(5)
    waiting, decided = buy(1, 2)[0], buy(2)[0]
    redis_client.delete(keys.of_sale(SALE, "stock"))

    prime(4, buyers={2: f"{decided}|o"})  # the second one has its order by now

    assert stock() == 2
    assert journal() == {waiting: (1, 2), decided: (2, 1)}
    assert buy(1)[1] == Verdict(Admission.QUEUED, waiting)
    gate.settle(SALE, [Settlement(waiting, 1, "failed", 2), Settlement(decided, 2)])
    assert (stock(), journal()) == (4, {})


def test_prime_never_goes_below_zero(redis_client: redis.Redis) -> None:
    prime(5)
    buy(1, 2)
    redis_client.delete(keys.of_sale(SALE, "stock"))

    prime(1)

    assert stock() == 0


def test_prime_starts_after_all_earlier_epochs_and_versions(redis_client: redis.Redis) -> None:
    prime(5)
    redis_client.set(keys.of_sale(SALE, "epoch"), 9 * 10**12)
    redis_client.set(keys.of_sale(SALE, "version"), 9 * 10**15)
    redis_client.delete(keys.of_sale(SALE, "stock"))

    prime(5)

    seen = gate.snapshot(SALE)
    assert (seen.epoch, seen.version) == (9 * 10**12 + 1, str(9 * 10**15 + 1))


# --- configure, due, reconcile --------------------------------------------------------------------


def test_configure_sets_newer_settings_and_ignores_older_ones() -> None:
    prime(5, revision=3)

    assert gate.configure(SALE, open_sale(revision=4, paused=True))
    assert not gate.configure(SALE, open_sale(revision=3))

    assert buy(1)[1] == Verdict(Admission.PAUSED)


def test_due_hands_a_purchase_out_once_a_try_and_waits_longer_each_time(
    redis_client: redis.Redis,
) -> None:
    prime(5)
    purchase, _ = buy(1, 2)

    assert gate.due(SALE, retry_after=10) == []
    first = gate.due(SALE, retry_after=0.0001)
    score = redis_client.zscore(keys.of_sale(SALE, "pending"), purchase)
    redis_client.zincrby(keys.of_sale(SALE, "pending"), -10_000, purchase)
    second = gate.due(SALE, retry_after=10)
    third = gate.due(SALE, retry_after=10)

    assert [(d.purchase_id, d.user_id, d.quantity, d.attempt) for d in first + second] == [
        (purchase, 1, 2, 1),
        (purchase, 1, 2, 2),
    ]
    assert score is not None
    assert third == []
    later = (redis_client.zscore(keys.of_sale(SALE, "pending"), purchase) or 0) - score
    assert 29_000 < later < 32_000  # due again 4 × 10 s after its second try


def test_due_forgets_a_journal_entry_without_a_claim(redis_client: redis.Redis) -> None:
    prime(5)
    buy(1)
    redis_client.delete(keys.of_sale(SALE, "claims"))

    assert gate.due(SALE, retry_after=0) == []

    assert redis_client.zcard(keys.of_sale(SALE, "pending")) == 0
    assert buy(1)[1] == RESERVED


def test_due_tells_the_age() -> None:
    prime(5)
    buy(1)

    (entry,) = gate.due(SALE, retry_after=0)

    assert 0 <= entry.age_ms < 5000


def test_reconcile_corrects_only_what_has_not_changed() -> None:
    prime(5)
    version = gate.snapshot(SALE).version
    buy(1)

    level, done = gate.reconcile(SALE, version=version, stock=5)
    assert (level.stock, done) == (4, False)

    level, done = gate.reconcile(SALE, version=gate.snapshot(SALE).version, stock=0)
    assert (level.stock, level.crossed, done) == (0, True, True)


def test_version_changes_with_every_change() -> None:
    prime(5)
    versions = [gate.snapshot(SALE).version]
    purchase, _ = buy(1)
    for change in (
        lambda: gate.settle(SALE, [Settlement(purchase, 1)]),
        lambda: gate.release(SALE, [Held(purchase, 1, 1)]),
        lambda: gate.adjust(SALE, "a", -1),
    ):
        versions.append(gate.snapshot(SALE).version)
        change()
    versions.append(gate.snapshot(SALE).version)

    assert len(set(versions)) == len(versions) == 5


def test_epoch_grows_whenever_stock_reaches_or_leaves_zero() -> None:
    prime(2)
    start = gate.snapshot(SALE).epoch
    epochs = []
    first, _ = buy(1)
    epochs.append(gate.snapshot(SALE).epoch - start)
    buy(2)
    epochs.append(gate.snapshot(SALE).epoch - start)
    gate.release(SALE, [Held(first, 1, 1)])
    epochs.append(gate.snapshot(SALE).epoch - start)
    gate.adjust(SALE, "a", -1)
    epochs.append(gate.snapshot(SALE).epoch - start)

    assert epochs == [0, 1, 2, 3]


def test_forget_removes_all_keys_of_the_sale(redis_client: redis.Redis) -> None:
    prime(1)
    buy(1)

    gate.forget(SALE)

    assert list(redis_client.scan_iter()) == []
