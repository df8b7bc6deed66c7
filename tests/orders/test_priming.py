"""Loading a gate from the database."""

import itertools
from datetime import timedelta
from functools import partial

import pytest
import redis
import uuid_utils.compat
from django.contrib.auth.models import User
from django.utils import timezone

from inventory import gate, keys
from inventory import services as inventory
from inventory.models import FlashSale
from orders import priming, services
from tests.conftest import RunDuring
from tests.factories import FlashSaleFactory, OrderFactory
from tests.orders.races import race

pytestmark = pytest.mark.django_db(transaction=True)


def stock(sale: FlashSale) -> int | None:
    return gate.snapshot(sale.pk).stock


def test_prime_loads_units_buyers_and_adjustments() -> None:
    sale = FlashSaleFactory(quantity=10)
    unpaid, paid = OrderFactory(sale=sale), OrderFactory(sale=sale, paid=True)
    OrderFactory(sale=sale, expired=True)
    OrderFactory(sale=sale, rejected=True)
    inventory.adjust_stock(sale.pk, delta=5, reason="more")

    assert priming.prime(sale.pk)

    assert stock(sale) == 13
    assert sorted(gate.buyers(sale.pk)) == sorted(
        [(unpaid.user_id, str(unpaid.pk), "o"), (paid.user_id, str(paid.pk), "o")]
    )
    assert [inventory.apply_adjustment(a) for a in sale.adjustments.all()] == [True]
    assert stock(sale) == 15 - 2


def test_prime_bars_those_who_had_their_one_try() -> None:
    sale = FlashSaleFactory(rebuy=False)
    over = OrderFactory(sale=sale, expired=True)

    priming.prime(sale.pk)

    assert list(gate.buyers(sale.pk)) == [(over.user_id, str(over.pk), "x")]


def test_prime_does_nothing_to_a_loaded_gate() -> None:
    sale = FlashSaleFactory(primed=True)
    FlashSale.objects.update(quantity=99)

    assert not priming.prime(sale.pk)
    assert stock(sale) == 10


def test_prime_of_an_unknown_sale_leaves_no_lock(redis_client: redis.Redis) -> None:
    with pytest.raises(FlashSale.DoesNotExist):
        priming.prime(404)

    assert list(redis_client.scan_iter()) == []


def test_prime_never_waits_for_another_process(redis_client: redis.Redis) -> None:
    sale = FlashSaleFactory()
    redis_client.set(keys.lock(f"prime:{sale.pk}"), "other", px=priming.LOCK_MS)

    assert not priming.prime(sale.pk)

    assert redis_client.get(keys.lock(f"prime:{sale.pk}")) == "other"
    assert stock(sale) is None


def test_prime_goes_on_once_the_lock_of_a_crashed_process_is_over(
    redis_client: redis.Redis,
) -> None:
    sale = FlashSaleFactory()
    lock = keys.lock(f"prime:{sale.pk}")
    redis_client.set(lock, "crashed", px=priming.LOCK_MS)
    assert 0 < redis_client.pttl(lock) <= 5000
    redis_client.pexpire(lock, 1)

    loaded = next(filter(None, (priming.prime(sale.pk) for _ in itertools.count())))

    assert (loaded, stock(sale)) == (True, 10)


def test_prime_in_many_processes_at_once_loads_once() -> None:
    sale = FlashSaleFactory()

    loaded = race(*[partial(priming.prime, sale.pk) for _ in range(6)])

    assert sorted(loaded) == [False] * 5 + [True]
    assert stock(sale) == 10


def test_prime_counts_an_adjustment_once_that_is_booked_meanwhile(run_during: RunDuring) -> None:
    sale = FlashSaleFactory()
    run_during(gate, "prime", lambda: inventory.adjust_stock(sale.pk, delta=5, reason="more"))

    priming.prime(sale.pk)
    for adjustment in sale.adjustments.all():
        inventory.apply_adjustment(adjustment)

    assert stock(sale) == 15


def test_prime_gets_settings_that_change_meanwhile(run_during: RunDuring) -> None:
    sale = FlashSaleFactory()
    run_during(gate, "prime", lambda: inventory.pause_sale(sale.pk))

    priming.prime(sale.pk)

    entry = gate.Entry(1, str(uuid_utils.compat.uuid7()))
    assert gate.reserve(sale.pk, [entry]).verdicts[0].admission is gate.Admission.PAUSED


def test_prime_with_an_order_that_is_made_meanwhile_is_too_high_never_too_low(
    run_during: RunDuring,
) -> None:
    sale = FlashSaleFactory()
    run_during(gate, "prime", lambda: OrderFactory(sale=sale))

    priming.prime(sale.pk)

    assert stock(sale) == 10  # 9 are left; the database refuses the tenth


def test_prime_with_an_order_that_ends_meanwhile_gets_its_unit_back(run_during: RunDuring) -> None:
    order = OrderFactory(pay_before=timezone.now() - timedelta(hours=1))
    run_during(gate, "prime", lambda: services.cancel_order(order.pk, actor="x"))

    priming.prime(order.sale_id)
    services.give_back([type(order).objects.get(pk=order.pk)])

    assert stock(order.sale) == 10


@pytest.mark.postgres
def test_prime_reads_one_snapshot(run_during: RunDuring) -> None:
    """An order that is made between its two queries is in both or in neither."""
    sale = FlashSaleFactory()
    user = User.objects.create(username="late")

    def make_order() -> None:
        race(lambda: OrderFactory(sale=sale, user=user))

    run_during(priming, "_buyers", make_order)

    priming.prime(sale.pk)

    assert (stock(sale), list(gate.buyers(sale.pk))) == (10, [])
