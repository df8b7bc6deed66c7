"""Random histories of the real gate and the real services, with crashes at every call to the gate.

A step is one call of a service. Before and after each call to the gate another process may run a
step of its own, the gate may seem away (its answer was lost), or the process may die. Each history
is brought to rest at its end; then nothing may be oversold, lost or without an answer.

PROTOCOL_RUNS (how many histories) and PROTOCOL_SEED (the first one's seed) are read from the
environment; a failure names its seed.
"""

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import redis
import uuid_utils.compat
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.utils import timezone

from inventory import gate, keys
from inventory import services as inventory
from inventory.models import FlashSale
from inventory.redis_clients import sync_client
from orders import accounting, audit, creation, priming, repair, services
from orders.creation import Purchase
from orders.models import ENDED, LIVE, Order, Payment, Status
from orders.payments import captures
from orders.payments.providers import Event
from tests.factories import FlashSaleFactory, UserFactory
from tests.support.params import LONG

pytestmark = pytest.mark.django_db(transaction=True)

RUNS = int(os.environ.get("PROTOCOL_RUNS", "24" if LONG else "6"))
FIRST_SEED = int(os.environ.get("PROTOCOL_SEED", "1"))
GATE_CALLS = (
    *("reserve", "settle", "release", "adjust", "prime", "configure"),
    *("retake", "due", "snapshot", "reconcile", "stocks", "journal_sizes"),
)
EXPIRED = timedelta(hours=-1)


class Crash(BaseException):
    """The process dies here: nothing in the product may catch this."""


class World:
    """One sale, a few buyers, messages in flight, and what was promised to whom."""

    def __init__(self, seed: int, users: Sequence[User], *, faults: bool) -> None:
        self.rng = random.Random(seed)
        self.faults = faults
        self.users = [user.pk for user in self.rng.sample(users, self.rng.randint(2, len(users)))]
        self.per_buyer = self.rng.choice((1, 2))
        sale = FlashSaleFactory(
            quantity=self.rng.randint(1, 6),
            per_buyer=self.per_buyer,
            rebuy=self.rng.random() < 0.6,
        )
        self.sale_id = sale.pk
        self.redis: redis.Redis = sync_client()
        self.messages: list[list[Purchase]] = []
        self.accepted: dict[UUID, int] = {}  # promised an answer → user
        self.may_be_lost: set[UUID] = set()  # never published, and Redis has forgotten something
        self.unpublished: set[UUID] = set()
        self.losses = 0
        self.answers: dict[UUID, bool] = {}  # purchase → became an order
        self.dumps: list[dict[str, bytes]] = []
        self.depth = 0
        self.resting = False
        priming.prime(self.sale_id)

    # --- what surrounds each call to the gate -----------------------------------------------------
    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self.interfere()
            result = call(*args, **kwargs)
            self.interfere()
            return result

        return wrapper

    def interfere(self) -> None:
        if self.resting or self.depth >= 3:
            return
        chance = self.rng.random()
        if chance < 0.12:
            self.step()
        elif chance < 0.16:
            raise Crash
        elif chance < 0.20:
            raise gate.GateError("the answer was lost")

    # --- steps ------------------------------------------------------------------------------------
    def step(self) -> None:
        names, weights = zip(*(self.FAULTY if self.faults else self.CALM), strict=True)
        action = self.rng.choices(names, weights)[0]
        self.depth += 1
        try:
            getattr(self, action)()
        except (Crash, gate.GateError):
            pass
        finally:
            self.depth -= 1
        self.check()

    def buy(self) -> None:
        user = self.rng.choice(self.users)
        entry = gate.Entry(
            user, str(uuid_utils.compat.uuid7()), self.rng.randint(1, self.per_buyer)
        )
        losses = self.losses
        verdict = gate.reserve(self.sale_id, [entry], limited=False).verdicts[0]
        if verdict.admission is gate.Admission.NOT_PRIMED:
            priming.prime(self.sale_id)
        if verdict.admission is gate.Admission.RESERVED:
            purchase = Purchase(UUID(entry.purchase_id), user, entry.quantity)
            self.accepted[purchase.purchase_id] = user
            if self.rng.random() < 0.85:
                self.messages.append([purchase])
            else:
                self.unpublished.add(purchase.purchase_id)
                if losses != self.losses:  # Redis forgot it before its buyer had the answer
                    self.may_be_lost.add(purchase.purchase_id)

    def create(self) -> None:
        if not self.messages:
            return
        count = self.rng.randint(1, len(self.messages))
        batches = [self.messages.pop(self.rng.randrange(len(self.messages))) for _ in range(count)]
        purchases = [purchase for batch in batches for purchase in batch]
        if self.rng.random() < 0.15:
            self.messages.append(purchases)  # delivered once more, later
        orders = creation.create_orders(sale_id=self.sale_id, purchases=purchases)
        if self.rng.random() < 0.1:
            self.messages.append(purchases)  # died before it could settle
            return
        try:
            services.settle(self.sale_id, orders)
        except Crash:
            self.messages.append(purchases)

    def cancel(self) -> None:
        self._move(services.cancel_order)

    def pay(self) -> None:
        self._take_money(self._orders(Status.UNPAID))

    def pay_late(self) -> None:
        """Money for an order that has ended; sometimes once more for one that is paid."""
        self._take_money([*self._orders(*ENDED), *self._orders(Status.PAID)[:1]])

    def _take_money(self, ids: list[UUID]) -> None:
        if not ids:
            return
        order = Order.objects.get(pk=self.rng.choice(ids))
        payment = Payment.objects.create(
            order=order,
            provider="sandbox",
            amount_cents=order.amount_cents,
            currency="CNY",
            status=Payment.State.FAILED,
            ended_at=timezone.now(),
        )
        fields = (str(payment.pk), str(order.pk), order.amount_cents, "CNY")
        captures.record("sandbox", Event(str(payment.pk), "payment.succeeded", *fields), "")

    def refund(self) -> None:
        paid = self._orders(Status.PAID)
        if paid:
            restock = self.rng.random() < 0.5
            services.refund_order(self.rng.choice(paid), actor="test", restock=restock)

    def _move(self, service: Callable[..., bool]) -> None:
        if unpaid := self._orders(Status.UNPAID):
            service(self.rng.choice(unpaid), actor="test")

    def _orders(self, *statuses: Status) -> list[UUID]:
        rows = Order.objects.filter(sale_id=self.sale_id, status__in=statuses).order_by("pk")
        return list(rows.values_list("pk", flat=True))

    def expire(self) -> None:
        if unpaid := self._orders(Status.UNPAID):
            chosen = self.rng.sample(unpaid, self.rng.randint(1, len(unpaid)))
            Order.objects.filter(pk__in=chosen).update(pay_before=timezone.now() + EXPIRED)
        services.expire_orders()

    def recover(self) -> None:
        for sale_id, purchases in repair.recover_reservations():
            if sale_id == self.sale_id:
                self.messages.append(purchases)

    def sweep(self) -> None:
        repair.sweep_releases()

    def reconcile(self) -> None:
        repair.reconcile(self.sale_id)

    def top_up(self) -> None:
        inventory.adjust_stock(self.sale_id, delta=self.rng.randint(1, 2), reason="more")

    def withdraw(self) -> None:
        try:
            inventory.adjust_stock(self.sale_id, delta=-self.rng.randint(1, 3), reason="fewer")
        except ValidationError:
            pass

    # --- what Redis may lose ----------------------------------------------------------------------
    def flush(self) -> None:
        self._forgotten()
        self.redis.delete(*keys.sale(self.sale_id))

    def lose_stock(self) -> None:
        self.redis.delete(keys.of_sale(self.sale_id, self.rng.choice(("stock", "info"))))

    def keep(self) -> None:
        dump = {name: self.redis.dump(name) for name in keys.sale(self.sale_id)}
        self.dumps.append({name: value for name, value in dump.items() if value})

    def roll_back(self) -> None:
        if not self.dumps:
            return
        self._forgotten()
        pipe = self.redis.pipeline()
        pipe.delete(*keys.sale(self.sale_id))
        for name, value in self.rng.choice(self.dumps).items():
            pipe.restore(name, 0, value)
        pipe.execute()

    def _forgotten(self) -> None:
        self.losses += 1
        self.may_be_lost |= self.unpublished

    CALM = (
        ("buy", 40),
        ("create", 22),
        ("cancel", 4),
        ("pay", 3),
        ("pay_late", 3),
        ("refund", 2),
        ("expire", 5),
        ("recover", 3),
        ("sweep", 5),
        ("reconcile", 2),
        ("top_up", 1),
    )
    FAULTY = (
        *CALM,
        ("withdraw", 1),
        ("flush", 1),
        ("lose_stock", 1),
        ("keep", 2),
        ("roll_back", 1),
    )

    # --- what must hold ---------------------------------------------------------------------------
    def check(self) -> None:
        """At every moment."""
        sale = FlashSale.objects.get(pk=self.sale_id)
        held = accounting.units_held(self.sale_id)
        assert held == sale.allocated <= sale.quantity, "oversold, or a unit lost"
        live: dict[int | None, int] = {}
        for order in Order.objects.filter(sale_id=self.sale_id):
            is_order = order.status != Status.REJECTED
            assert self.answers.setdefault(order.pk, is_order) == is_order, "an answer changed"
            if order.status in LIVE:
                assert order.user_id not in live, "two live orders"
                live[order.user_id] = order.quantity
        stock = self.redis.get(keys.of_sale(self.sale_id, "stock"))
        assert stock is None or int(stock) >= 0, "gate below zero"

    def rest(self) -> None:
        """Faults are over: everything that runs periodically runs."""
        self.resting = True
        for _ in range(10):
            self.recover()
            while self.messages:
                self.create()
            self.expire()
            self.sweep()
            captures.settle_due()
        if not self.faults:
            books = accounting.read(self.sale_id)
            assert books.at_rest
            assert books.drift == 0, f"units lost without any loss of Redis: {books}"
        for _ in range(3):
            self.reconcile()
        self.check()
        report = audit.audit(self.sale_id)
        assert report["ok"], report["sales"][0]["violations"]
        sale = report["sales"][0]
        assert (sale["gate"], sale["in_flight"]) == (sale["available"], 0), report
        unanswered = self.accepted.keys() - self.answers.keys() - self.may_be_lost
        assert not unanswered, f"without an answer: {unanswered}"


@contextmanager
def surrounded(world: World) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in GATE_CALLS:
            patch.setattr(gate, name, world.around(getattr(gate, name)))
        yield


def run(seed: int, users: Sequence[User]) -> None:
    world = World(seed, users, faults=seed % 3 != 0)
    with surrounded(world):
        for _ in range(world.rng.randint(20, 120)):
            world.step()
        world.rest()
    # What is over must not be looked after in the next history.
    FlashSale.objects.filter(pk=world.sale_id).update(
        starts_at=timezone.now() - timedelta(days=9), ends_at=timezone.now() - timedelta(days=8)
    )


def test_protocol_random_histories_end_at_rest(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ADMIT_RETRY_AFTER = 0
    monkeypatch.setattr(captures, "SETTLE_AFTER", timedelta())
    users = UserFactory.create_batch(10)

    for seed in range(FIRST_SEED, FIRST_SEED + RUNS):
        try:
            run(seed, users)
        except AssertionError as error:
            error.add_note(f"PROTOCOL_SEED={seed}")
            raise
