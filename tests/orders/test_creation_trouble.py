"""A purchase that can't become an order harms no other, and a busy database harms none."""

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
import uuid_utils.compat
from django.contrib.auth.models import User
from django.db import OperationalError, connection, transaction

from inventory import services as inventory
from inventory.models import FlashSale
from orders import accounting, creation
from orders.creation import Purchase
from orders.models import Order, Status
from tests.factories import FlashSaleFactory, OrderFactory, UserFactory
from tests.orders.races import race

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


def test_create_orders_rejects_alone_the_buyer_whose_account_is_gone(buyers: list[User]) -> None:
    sale = FlashSaleFactory(quantity=200)
    purchases = [purchase(user) for user in buyers]
    purchases[37] = purchase(buyers[-1].pk + 1000)

    answers = create(sale, purchases)

    assert answers[purchases[37].purchase_id] == "failed"
    assert Counter(answers.values()) == {"created": 99, "failed": 1}
    rejected = Order.objects.get(pk=purchases[37].purchase_id)
    assert (rejected.user_id, rejected.gate_return) == (None, 1)
    assert allocated(sale) == 99


@pytest.fixture
def refusing() -> Iterator[User]:
    """A buyer whose orders the database refuses."""
    user = UserFactory(username="refused")
    with connection.cursor() as cursor:
        cursor.execute(TRIGGERS[connection.vendor].format(user=user.pk))
    yield user
    with connection.cursor() as cursor:
        cursor.execute(DROPS[connection.vendor])


TRIGGERS = {
    "sqlite": "CREATE TRIGGER refuse BEFORE INSERT ON orders_order"
    " WHEN NEW.user_id = {user} AND NEW.status = 0"
    " BEGIN SELECT RAISE(ABORT, 'refused'); END",
    "postgresql": "CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN"
    " IF NEW.user_id = {user} AND NEW.status = 0 THEN RAISE EXCEPTION 'refused'; END IF;"
    " RETURN NEW; END $$ LANGUAGE plpgsql;"
    "CREATE TRIGGER refuse BEFORE INSERT ON orders_order FOR EACH ROW EXECUTE FUNCTION refuse()",
}
DROPS = {
    "sqlite": "DROP TRIGGER refuse",
    "postgresql": "DROP TRIGGER refuse ON orders_order; DROP FUNCTION refuse()",
}


def test_create_orders_rejects_alone_what_the_database_refuses(
    buyers: list[User], refusing: User, caplog: pytest.LogCaptureFixture
) -> None:
    sale = FlashSaleFactory(quantity=200)
    purchases = [purchase(user) for user in [*buyers[:40], refusing, *buyers[40:]]]

    answers = create(sale, purchases)

    assert answers[purchases[40].purchase_id] == "failed"
    assert Counter(answers.values()) == {"created": 100, "failed": 1}
    assert allocated(sale) == 100
    assert f"{purchases[40].purchase_id} can't become an order" in caplog.text


def test_create_orders_decides_nothing_if_the_database_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sale = FlashSaleFactory()

    def away(*args: Any) -> Any:
        raise OperationalError("connection lost")

    monkeypatch.setattr(inventory, "allocate", away)
    with pytest.raises(OperationalError):
        creation.create_orders(sale_id=sale.pk, purchases=[purchase(UserFactory())])

    assert Order.objects.count() == 0
    assert allocated(sale) == 0


@pytest.mark.postgres
def test_create_orders_decides_nothing_in_a_database_that_is_read_only() -> None:
    """Its driver blames the statement, but the purchases are as good as ever."""
    sale, bought = FlashSaleFactory(), purchase(UserFactory())
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
        try:
            with pytest.raises(OperationalError):
                creation.create_orders(sale_id=sale.pk, purchases=[bought])
        finally:
            cursor.execute("SET default_transaction_read_only = off")

    assert Order.objects.count() == 0
    assert create(sale, [bought]) == {bought.purchase_id: "created"}


@pytest.mark.postgres
def test_create_orders_tries_again_after_a_deadlock(buyers: list[User]) -> None:
    """A rival locks the sale first and the buyer's row second: one of the two must give way."""
    sale = FlashSaleFactory()
    first = OrderFactory(sale=sale, user=buyers[0])
    bought = purchase(buyers[1])
    locked, entered = threading.Event(), threading.Event()
    attempts: list[int] = []
    create_once = creation._create

    def create_counted(sale_id: int, purchases: list[Purchase]) -> Any:
        attempts.append(1)
        with transaction.atomic():
            if len(attempts) == 1:
                Order.objects.filter(pk=first.pk).update(quantity=1)
                entered.set()
                locked.wait(10)
            return create_once(sale_id, purchases)

    def rival() -> None:
        entered.wait(10)
        with transaction.atomic(), connection.cursor() as cursor:
            # The loser of a deadlock is whoever notices it first.
            cursor.execute("SET LOCAL deadlock_timeout = '10s'; SET LOCAL lock_timeout = 0")
            FlashSale.objects.filter(pk=sale.pk).update(per_buyer=1)
            locked.set()
            Order.objects.filter(pk=first.pk).update(quantity=1)

    def buy() -> list[Order]:
        return creation.create_orders(sale_id=sale.pk, purchases=[bought])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(creation, "_create", create_counted)
        _, orders = race(rival, buy)

    assert len(attempts) == 2
    assert [(o.pk, o.status) for o in orders or []] == [(bought.purchase_id, Status.UNPAID)]
    assert allocated(sale) == 2
