"""Rows for tests, consistent with each other: a live order has its units allocated in its sale."""

import uuid
from datetime import timedelta
from typing import Any

import factory
import uuid_utils.compat
from django.contrib.auth.models import User
from django.db.models import F
from django.utils import timezone
from factory.django import DjangoModelFactory

from inventory.models import FlashSale, Product
from orders import priming
from orders.models import LIVE, Order, OrderEvent, Payment, Rejection, Status

HOUR = timedelta(hours=1)


def _in(delta: timedelta) -> Any:
    return factory.LazyFunction(lambda: timezone.now() + delta)


class UserFactory(DjangoModelFactory):  # type: ignore[misc]
    """`staff=True`: may do everything in the admin. `with_password=True`: it is the user name."""

    class Meta:
        model = User
        skip_postgeneration_save = True

    class Params:
        staff = factory.Trait(is_staff=True, is_superuser=True)
        # Not always, because a good hash takes its time.
        with_password = factory.Trait(
            password=factory.django.Password(factory.SelfAttribute("username"))
        )

    username = factory.Sequence(lambda n: f"user{n}")
    password = "!"


class ProductFactory(DjangoModelFactory):  # type: ignore[misc]
    class Meta:
        model = Product

    name = factory.Sequence(lambda n: f"Product {n}")


class FlashSaleFactory(DjangoModelFactory):  # type: ignore[misc]
    """Open now with 10 units at 9.90. `primed=True` loads its gate as well."""

    class Meta:
        model = FlashSale
        skip_postgeneration_save = True

    class Params:
        open_now = factory.Trait(starts_at=_in(-HOUR), ends_at=_in(HOUR))
        scheduled = factory.Trait(starts_at=_in(HOUR), ends_at=_in(2 * HOUR))
        closed = factory.Trait(starts_at=_in(-2 * HOUR), ends_at=_in(-HOUR))

    product = factory.SubFactory(ProductFactory)
    price_cents = 990
    quantity = 10
    starts_at = _in(-HOUR)
    ends_at = _in(HOUR)

    @factory.post_generation
    def primed(self: FlashSale, create: bool, extracted: Any, **kwargs: Any) -> None:
        if extracted:
            assert priming.prime(self.pk)


class OrderFactory(DjangoModelFactory):  # type: ignore[misc]
    """Unpaid, a quarter of an hour to pay. The traits are the other states it may be in."""

    class Meta:
        model = Order
        skip_postgeneration_save = True

    class Params:
        overdue = factory.Trait(created_at=_in(-HOUR), pay_before=_in(-HOUR / 2))
        paid = factory.Trait(status=Status.PAID, paid_at=_in(timedelta()))
        canceled = factory.Trait(status=Status.CANCELED, closed_at=_in(timedelta()), restocked=True)
        expired = factory.Trait(
            status=Status.EXPIRED,
            created_at=_in(-HOUR),
            pay_before=_in(-HOUR / 2),
            closed_at=_in(-HOUR / 2),
            restocked=True,
        )
        refunded = factory.Trait(
            status=Status.REFUNDED, paid_at=_in(-HOUR), closed_at=_in(timedelta())
        )
        rejected = factory.Trait(status=Status.REJECTED, code=Rejection.SOLD_OUT)

    id = factory.LazyFunction(uuid_utils.compat.uuid7)
    sale = factory.SubFactory(FlashSaleFactory)
    user = factory.SubFactory(UserFactory)
    product_name = factory.SelfAttribute("sale.product.name")
    quantity = 1
    unit_price_cents = factory.SelfAttribute("sale.price_cents")
    amount_cents = factory.LazyAttribute(lambda o: o.unit_price_cents * o.quantity)
    currency = "CNY"
    status = Status.UNPAID
    created_at = _in(timedelta())
    pay_before = _in(HOUR / 4)

    @factory.post_generation
    def booked(self: Order, create: bool, extracted: Any, **kwargs: Any) -> None:
        """Allocate the units, write the first event, and take the money of a paid order."""
        if self.status in LIVE:
            FlashSale.objects.filter(pk=self.sale_id).update(
                allocated=F("allocated") + self.quantity
            )
        if self.status == Status.PAID:
            PaymentFactory(order=self, captured=True, use=Payment.Use.ORDER)
        kind = "rejected" if self.status == Status.REJECTED else "created"
        OrderEvent.objects.create(order=self, kind=kind, at=self.created_at)


class PaymentFactory(DjangoModelFactory):  # type: ignore[misc]
    """Begun. `started`: its provider has said where to pay. `captured`: the money was taken."""

    class Meta:
        model = Payment

    class Params:
        started = factory.Trait(
            url=factory.LazyAttribute(lambda p: f"/cashier/{p.id}/"), ask_at=_in(HOUR / 4)
        )
        captured = factory.Trait(status=Payment.State.SUCCEEDED, ended_at=_in(timedelta()))

    id = factory.LazyFunction(uuid.uuid4)
    order = factory.SubFactory(OrderFactory)
    provider = "sandbox"
    amount_cents = factory.SelfAttribute("order.amount_cents")
    currency = factory.SelfAttribute("order.currency")
