"""Admitted purchases become orders, or rejections with a cause."""

import random
from collections import Counter
from functools import partial
from typing import Any
from uuid import UUID

import pytest
import uuid_utils.compat
from django.contrib.auth.models import User
from django.db.models import F
from pytest_django import DjangoAssertNumQueries, Settings

from inventory.models import FlashSale
from orders import accounting, creation, insertion
from orders.creation import Purchase
from orders.models import Order, OrderEvent, Rejection, Status
from tests.conftest import RunDuring
from tests.factories import FlashSaleFactory, OrderFactory, UserFactory
from tests.orders.races import race, race_many

# Transactions are real: foreign keys are checked at the commit, and threads see what is committed.
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def buyers() -> list[User]:
    return User.objects.bulk_create(User(username=f"buyer{n}", password="!") for n in range(100))


def purchase(user: Any, quantity: int = 1) -> Purchase:
    return Purchase(uuid_utils.compat.uuid7(), user.pk if hasattr(user, "pk") else user, quantity)


def create(sale: FlashSale, purchases: list[Purchase]) -> dict[UUID, str]:
    """Purchase → "created", or the cause of its rejection, as the service says and as stored."""
    orders = creation.create_orders(sale_id=sale.pk, purchases=purchases)
    answers = {order.pk: order.code or "created" for order in orders}
    stored = dict(Order.objects.filter(pk__in=answers).values_list("pk", "code"))
    assert answers == {pk: code or "created" for pk, code in stored.items()}
    return answers


def allocated(sale: FlashSale) -> int:
    """With a look at whether the counter matches the orders."""
    assert accounting.allocated_drift(sale.pk) == 0
    return FlashSale.objects.get(pk=sale.pk).allocated


# --- the ordinary way -----------------------------------------------------------------------------


def test_create_orders_makes_an_order_of_each_purchase(buyers: list[User]) -> None:
    sale = FlashSaleFactory(quantity=100)
    purchases = [purchase(user) for user in buyers]

    assert create(sale, purchases) == {p.purchase_id: "created" for p in purchases}

    assert allocated(sale) == 100
    assert OrderEvent.objects.filter(kind="created", order__sale=sale).count() == 100


def test_create_orders_copies_the_price_and_sets_the_deadline(settings: Settings) -> None:
    settings.PAYMENT_WINDOW = 60
    sale, user = FlashSaleFactory(price_cents=990, per_buyer=2), UserFactory()
    bought = purchase(user, 2)

    create(sale, [bought])
    FlashSale.objects.update(price_cents=1)

    order = Order.objects.get(pk=bought.purchase_id)
    assert (order.user_id, order.product_name) == (user.pk, sale.product.name)
    assert (order.unit_price_cents, order.amount_cents, order.currency) == (990, 1980, "CNY")
    assert order.status == Status.UNPAID
    assert (order.pay_before - order.created_at).total_seconds() == 60


@pytest.mark.parametrize("count", [1, 100])
def test_create_orders_takes_as_many_queries_for_any_batch(
    buyers: list[User], django_assert_num_queries: DjangoAssertNumQueries, count: int
) -> None:
    sale = FlashSaleFactory(quantity=100)
    purchases = [purchase(user) for user in buyers[:count]]

    # Begin, sale and clock, orders, units, events, commit.
    with django_assert_num_queries(6):
        creation.create_orders(sale_id=sale.pk, purchases=purchases)


def test_create_orders_of_nothing_does_nothing() -> None:
    assert creation.create_orders(sale_id=FlashSaleFactory().pk, purchases=[]) == []


# --- delivered again ------------------------------------------------------------------------------


def test_create_orders_twice_gives_the_same_answers(buyers: list[User]) -> None:
    sale = FlashSaleFactory(quantity=6)
    purchases = [purchase(user) for user in buyers[:10]]

    first = create(sale, purchases)
    again = create(sale, purchases)

    assert first == again
    assert Counter(first.values()) == {"created": 6, "sold_out": 4}
    assert allocated(sale) == 6
    assert OrderEvent.objects.filter(order__sale=sale).count() == 10


def test_create_orders_takes_the_same_purchase_in_a_batch_once() -> None:
    sale, bought = FlashSaleFactory(), purchase(UserFactory())

    assert create(sale, [bought, bought]) == {bought.purchase_id: "created"}
    assert allocated(sale) == 1


def test_create_orders_with_a_known_and_a_new_purchase(buyers: list[User]) -> None:
    sale = FlashSaleFactory()
    known, new = purchase(buyers[0]), purchase(buyers[1])
    create(sale, [known])

    assert set(create(sale, [known, new]).values()) == {"created"}
    assert allocated(sale) == 2


def test_create_orders_in_several_processes_at_once_makes_one_order_each(
    buyers: list[User],
) -> None:
    sale = FlashSaleFactory(quantity=100)
    purchases = [purchase(user) for user in buyers]
    shuffled = [random.sample(purchases, len(purchases)) for _ in range(4)]

    answers = race(
        *(lambda p=p: creation.create_orders(sale_id=sale.pk, purchases=p) for p in shuffled)
    )

    assert [len(orders) for orders in answers] == [100] * 4
    assert Order.objects.filter(sale=sale, status=Status.UNPAID).count() == 100
    assert allocated(sale) == 100
    assert OrderEvent.objects.filter(order__sale=sale).count() == 100


def test_create_orders_at_once_with_the_last_units(buyers: list[User]) -> None:
    sale = FlashSaleFactory(quantity=30)
    batches = [[purchase(user) for user in buyers[start::4]] for start in range(4)]

    answers = race(
        *(lambda b=b: creation.create_orders(sale_id=sale.pk, purchases=b) for b in batches)
    )

    codes = Counter(order.code for orders in answers for order in orders)
    assert codes == {"": 30, "sold_out": 70}
    assert allocated(sale) == 30


# --- refusals -------------------------------------------------------------------------------------


def test_create_orders_rejects_a_second_purchase_of_a_buyer() -> None:
    sale, user = FlashSaleFactory(), UserFactory()
    first, second = purchase(user), purchase(user)

    assert create(sale, [first]) == {first.purchase_id: "created"}
    assert create(sale, [second]) == {second.purchase_id: "duplicate"}

    rejected = Order.objects.get(pk=second.purchase_id)
    assert (rejected.status, rejected.gate_return) == (Status.REJECTED, 1)
    assert allocated(sale) == 1


def test_create_orders_rejects_the_second_of_two_in_a_batch() -> None:
    sale, user = FlashSaleFactory(), UserFactory()
    first, second = purchase(user), purchase(user)

    assert sorted(create(sale, [first, second]).values()) == ["created", "duplicate"]
    assert allocated(sale) == 1


@pytest.mark.parametrize(
    ("trait", "rebuy", "code"),
    [
        ("expired", True, "created"),
        ("canceled", True, "created"),
        ("refunded", True, "created"),
        ("expired", False, "rebuy_not_allowed"),
        ("canceled", False, "rebuy_not_allowed"),
        ("refunded", False, "rebuy_not_allowed"),
        ("rejected", False, "created"),
    ],
)
def test_create_orders_bars_a_second_try_only_where_the_sale_does(
    trait: str, rebuy: bool, code: str
) -> None:
    over = OrderFactory(
        sale=FlashSaleFactory(rebuy=rebuy), **{trait: True}, restocked=trait != "rejected"
    )
    other, again = purchase(UserFactory()), purchase(over.user, 1)

    answers = create(over.sale, [again, other])

    assert answers == {again.purchase_id: code, other.purchase_id: "created"}
    assert allocated(over.sale) == (2 if code == "created" else 1)
    rejected = Order.objects.filter(code="rebuy_not_allowed")
    assert list(rejected.values_list("gate_return", flat=True)) == [1] * (code != "created")


def test_create_orders_bars_a_second_try_though_the_first_ends_meanwhile(
    run_during: RunDuring,
) -> None:
    first = OrderFactory(sale=FlashSaleFactory(rebuy=False))
    again = purchase(first.user)

    def end() -> None:
        Order.objects.filter(pk=first.pk).update(status=Status.EXPIRED, restocked=True)
        FlashSale.objects.update(allocated=F("allocated") - 1)

    run_during(insertion, "insert_new", end)

    assert create(first.sale, [again]) == {again.purchase_id: "rebuy_not_allowed"}


def test_create_orders_gives_the_last_units_in_order_of_arrival(buyers: list[User]) -> None:
    sale = FlashSaleFactory(quantity=5, per_buyer=3)
    # The last buyer arrives first, to tell the order of arrival from the order of the inserts.
    wanted = [(buyers[9], 2), (buyers[1], 2), (buyers[8], 2), (buyers[0], 1), (buyers[2], 1)]
    purchases = [purchase(user, quantity) for user, quantity in wanted]

    answers = create(sale, purchases)

    codes = [answers[p.purchase_id] for p in purchases]
    assert codes == ["created", "created", "sold_out", "created", "sold_out"]
    assert allocated(sale) == 5
    # Of the units that didn't fit, only what the row still had free goes back to the gate.
    returns = [Order.objects.get(pk=p.purchase_id).gate_return for p in purchases]
    assert returns == [0, 0, 1, 0, 0]


def test_create_orders_rejects_everything_once_sold_out(buyers: list[User]) -> None:
    sale = FlashSaleFactory(quantity=1)
    create(sale, [purchase(buyers[0])])

    answers = create(sale, [purchase(user) for user in buyers[1:4]])

    assert Counter(answers.values()) == {"sold_out": 3}
    assert allocated(sale) == 1


def test_create_orders_of_a_sale_that_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    bought = purchase(UserFactory())

    (order,) = creation.create_orders(sale_id=404, purchases=[bought])

    assert (order.pk, order.status, order.code) == (bought.purchase_id, 5, Rejection.FAILED)
    assert Order.objects.count() == 0
    assert "sale 404 is gone" in caplog.text


# --- messages -------------------------------------------------------------------------------------


def test_create_orders_of_a_sale_that_has_ended_meanwhile() -> None:
    """Whoever was admitted in time gets an order, however late its message comes."""
    bought = purchase(UserFactory())

    assert create(FlashSaleFactory(closed=True), [bought]) == {bought.purchase_id: "created"}


@pytest.mark.parametrize(
    "entry",
    [
        [],
        ["no uuid", 1, 1],
        [str(UUID(int=1)), "x", 1],
        [str(UUID(int=1)), 1],
        [str(UUID(int=1)), 1, 1, 1],
        [str(UUID(int=1)), 1, 0],
        [str(UUID(int=1)), 1, -1],
        [str(UUID(int=1)), 1, 40_000],
        [str(UUID(int=1)), 0, 1],
        [str(UUID(int=1)), 2**40, 1],
        [str(UUID(int=1)), float("inf"), 1],
        None,
        7,
    ],
)
def test_parse_leaves_out_what_makes_no_sense(entry: Any, caplog: pytest.LogCaptureFixture) -> None:
    good: list[str | int] = [str(UUID(int=2)), 5, 1]

    assert creation.parse([entry, good]) == [Purchase(UUID(int=2), 5, 1)]
    assert "unreadable purchase" in caplog.text


# --- reject_purchases -----------------------------------------------------------------------------


def test_reject_purchases_closes_ids_for_ever() -> None:
    sale, bought = FlashSaleFactory(), purchase(UserFactory())

    for _ in range(2):
        (order,) = creation.reject_purchases(
            sale_id=sale.pk, purchases=[bought], code=Rejection.FAILED
        )
        assert (order.pk, order.code, order.gate_return) == (bought.purchase_id, "failed", 1)

    assert create(sale, [bought]) == {bought.purchase_id: "failed"}
    assert allocated(sale) == 0
    assert OrderEvent.objects.filter(kind="rejected").count() == 1


def test_reject_purchases_leaves_orders_as_they_are() -> None:
    order = OrderFactory()

    (answer,) = creation.reject_purchases(
        sale_id=order.sale_id,
        purchases=[Purchase(order.pk, order.user_id, 1)],
        code=Rejection.FAILED,
    )

    assert (answer.pk, answer.status) == (order.pk, Status.UNPAID)
    assert allocated(order.sale) == 1


def test_create_and_reject_at_once_agree(buyers: list[User]) -> None:
    sale = FlashSaleFactory(quantity=100)
    purchases = [purchase(user) for user in buyers[:40]]

    def rejecting(p: Purchase) -> list[Order]:
        return creation.reject_purchases(sale_id=sale.pk, purchases=[p], code=Rejection.FAILED)

    def creating(p: Purchase) -> list[Order]:
        return creation.create_orders(sale_id=sale.pk, purchases=[p])

    rounds = race_many([[partial(rejecting, p), partial(creating, p)] for p in purchases])

    for (rejected,), (created,) in rounds:
        assert (rejected.pk, rejected.status) == (created.pk, created.status)
    assert allocated(sale) == Order.objects.filter(status=Status.UNPAID).count()
